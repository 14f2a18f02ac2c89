// Summaries of windows: maxima and means, and their gradients.
//
// Gradients are gathered: a thread finds the windows its pixel is in, so no two threads add to one
// address and the order of additions is fixed. What is read has any strides, what is written is
// row-major.
//
// Grid: x over windows or pixels, y over channels, z over images; block: x and y likewise.
#include "pack.cuh"
#include "windows.cuh"

// What no number is less than.
template <typename T>
LUCID_FN T lucid_bottom()
{
    if constexpr (lucid_is_narrow<T>) return lucid_cast<T>(__uint_as_float(0xff800000u));
    else if constexpr (lucid_is_float<T>) return (T)__uint_as_float(0xff800000u);
    else if constexpr (lucid_is_signed_integer<T>) return (T)(1ull << (8 * sizeof(T) - 1));
    else return T();
}

// The first of the largest pixels of each window, and its place in the window; NaN is larger than
// any number. Bytes: the image once, the maxima and places (one byte each) once.
template <typename T, typename P, LUCID_WINDOW>
LUCID_FN void max_pool(const T* x, T* y, P* places, const lucid_images& size,
                       const lucid_image_strides& x_at)
{
    LUCID_AXES;
    typedef lucid_wide<T> Wide;
    const int window = blockIdx.x * blockDim.x + threadIdx.x;
    if (window >= size.windows()) return;
    const int v = window / size.across, u = window - v * size.across;
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* plane = x + lucid_plane_at(x_at, n, c);
        T largest = lucid_bottom<T>();
        int place = -1;
        #pragma unroll (lucid_unrolls<KH, KH * KW>)
        for (int i = 0; i < KH; ++i) {
            const int row = Down::pixel(v, i);
            #pragma unroll (lucid_unrolls<KW, KW>)
            for (int j = 0; j < KW; ++j) {
                const int column = Across::pixel(u, j);
                if ((unsigned)row >= size.height || (unsigned)column >= size.width) continue;
                const T here = lucid_load<1>(plane + lucid_pixel_at(x_at, row, column))[0];
                const Wide value = lucid_cast<Wide>(here);
                if (place < 0 || value > lucid_cast<Wide>(largest) || value != value) {
                    largest = here;
                    place = i * KW + j;
                }
            }
        }
        const long long at = size.plane(n, c) * size.windows() + window;
        y[at] = largest;
        places[at] = (P)place;
    }
}

// Gradients of maxima, put onto the pixels they were. Bytes: gradients and places once, the image
// once.
template <typename T, typename P, LUCID_WINDOW>
LUCID_FN void max_pool_bwd(const T* g, const P* places, T* x, const lucid_images& size,
                           const lucid_image_strides& g_at)
{
    LUCID_AXES;
    typedef lucid_wide<T> Wide;
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= size.pixels()) return;
    const int row = pixel / size.width, column = pixel - row * size.width;
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* from = g + lucid_plane_at(g_at, n, c);
        const P* places_from = places + size.plane(n, c) * size.windows();
        Wide sum = Wide();
        #pragma unroll (lucid_unrolls<Down::over, Down::over * Across::over>)
        for (int s = 0; s < Down::over; ++s) {
            int v, i;
            if (!Down::window_over(row, s, size.down, v, i)) continue;
            #pragma unroll (lucid_unrolls<Across::over, Across::over>)
            for (int t = 0; t < Across::over; ++t) {
                int u, j;
                if (!Across::window_over(column, t, size.across, u, j)) continue;
                if (lucid_load<1>(places_from + v * size.across + u)[0] == i * KW + j)
                    sum += lucid_cast<Wide>(lucid_load<1>(from + lucid_pixel_at(g_at, v, u))[0]);
            }
        }
        x[size.plane(n, c) * size.pixels() + pixel] = lucid_cast<T>(sum);
    }
}

// The pixel at a known place of each window: the adjoint of `max_pool_bwd`.
template <typename T, typename P, LUCID_WINDOW>
LUCID_FN void max_pool_take(const T* x, const P* places, T* y, const lucid_images& size,
                            const lucid_image_strides& x_at)
{
    LUCID_AXES;
    const int window = blockIdx.x * blockDim.x + threadIdx.x;
    if (window >= size.windows()) return;
    const int v = window / size.across, u = window - v * size.across;
    LUCID_EACH_PLANE(size, n, c)
    {
        const long long at = size.plane(n, c) * size.windows() + window;
        const int place = lucid_load<1>(places + at)[0];
        const int row = Down::pixel(v, place / KW), column = Across::pixel(u, place % KW);
        const T* plane = x + lucid_plane_at(x_at, n, c);
        y[at] = lucid_load<1>(plane + lucid_pixel_at(x_at, row, column))[0];
    }
}

// The mean of each window: its sum divided by `divisor` or, where that is 0, by how many pixels
// count. Bytes: the image once, the means once.
template <typename T, bool PADDING, LUCID_WINDOW>
LUCID_FN void avg_pool(const T* x, T* y, int divisor, const lucid_images& size,
                       const lucid_image_strides& x_at)
{
    LUCID_AXES;
    typedef lucid_wide<T> Wide;
    const int window = blockIdx.x * blockDim.x + threadIdx.x;
    if (window >= size.windows()) return;
    const int v = window / size.across, u = window - v * size.across;
    const int counted = Down::template counted<PADDING>(v, size.height)
                        * Across::template counted<PADDING>(u, size.width);
    const Wide count = (Wide)(divisor ? divisor : counted);
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* plane = x + lucid_plane_at(x_at, n, c);
        Wide sum = Wide();
        #pragma unroll (lucid_unrolls<KH, KH * KW>)
        for (int i = 0; i < KH; ++i) {
            const int row = Down::pixel(v, i);
            #pragma unroll (lucid_unrolls<KW, KW>)
            for (int j = 0; j < KW; ++j) {
                const int column = Across::pixel(u, j);
                if ((unsigned)row < size.height && (unsigned)column < size.width)
                    sum += lucid_cast<Wide>(
                        lucid_load<1>(plane + lucid_pixel_at(x_at, row, column))[0]);
            }
        }
        y[size.plane(n, c) * size.windows() + window] = lucid_cast<T>((Wide)(sum / count));
    }
}

// Gradients of means, spread over their windows: the adjoint of `avg_pool`. Bytes: the gradients
// once, the image once.
template <typename T, bool PADDING, LUCID_WINDOW>
LUCID_FN void avg_pool_bwd(const T* g, T* x, int divisor, const lucid_images& size,
                           const lucid_image_strides& g_at)
{
    LUCID_AXES;
    typedef lucid_wide<T> Wide;
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= size.pixels()) return;
    const int row = pixel / size.width, column = pixel - row * size.width;
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* from = g + lucid_plane_at(g_at, n, c);
        Wide sum = Wide();
        #pragma unroll (lucid_unrolls<Down::over, Down::over * Across::over>)
        for (int s = 0; s < Down::over; ++s) {
            int v, i;
            if (!Down::window_over(row, s, size.down, v, i)) continue;
            const int rows = Down::template counted<PADDING>(v, size.height);
            #pragma unroll (lucid_unrolls<Across::over, Across::over>)
            for (int t = 0; t < Across::over; ++t) {
                int u, j;
                if (!Across::window_over(column, t, size.across, u, j)) continue;
                const int counted = rows * Across::template counted<PADDING>(u, size.width);
                sum += lucid_cast<Wide>(lucid_load<1>(from + lucid_pixel_at(g_at, v, u))[0])
                       / (Wide)(divisor ? divisor : counted);
            }
        }
        x[size.plane(n, c) * size.pixels() + pixel] = lucid_cast<T>(sum);
    }
}
