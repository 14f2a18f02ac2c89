// Windows of images as columns (im2col), and columns added back onto images (col2im). The two are
// adjoint linear maps. Columns are numbered (image, row, position): a row is a channel and a place
// in the window, a position is a window; strides say in which order they lie in memory.
//
// Grid: x over positions or pixels, y over channels, z over images; block: x and y likewise.
#include "complex.cuh"
#include "pack.cuh"
#include "windows.cuh"

typedef lucid_strides<long long, 3> lucid_column_strides;

// A thread reads the pixels of one window of a channel and writes them: a warp writes a contiguous
// stretch for every place in the window where positions lie next to each other. Bytes: the image
// once (its pixels are read again through the cache), the columns once.
template <typename T, LUCID_WINDOW>
LUCID_FN void im2col(const T* x, T* columns, const lucid_images& size,
                     const lucid_image_strides& x_at, const lucid_column_strides& columns_at)
{
    LUCID_AXES;
    const int position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= size.windows()) return;
    const int v = position / size.across, u = position - v * size.across;
    const long long step = columns_at.at[1];
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* plane = x + lucid_plane_at(x_at, n, c);
        T* to = columns + n * columns_at.at[0] + c * (KH * KW) * step + position * columns_at.at[2];
        #pragma unroll (lucid_unrolls<KH, KH * KW>)
        for (int i = 0; i < KH; ++i) {
            const int row = Down::pixel(v, i);
            #pragma unroll (lucid_unrolls<KW, KW>)
            for (int j = 0; j < KW; ++j, to += step) {
                const int column = Across::pixel(u, j);
                const bool inside = (unsigned)row < size.height && (unsigned)column < size.width;
                *to = inside ? lucid_load<1>(plane + lucid_pixel_at(x_at, row, column))[0] : T();
            }
        }
    }
}

// A thread gathers what belongs to one pixel, so no two threads add to one address: the order of
// additions is fixed. Bytes: the columns once, the image once.
template <typename T, LUCID_WINDOW>
LUCID_FN void col2im(const T* columns, T* x, const lucid_images& size,
                     const lucid_column_strides& columns_at)
{
    LUCID_AXES;
    typedef lucid_wide<T> Wide;
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= size.pixels()) return;
    const int row = pixel / size.width, column = pixel - row * size.width;
    const long long step = columns_at.at[1];
    LUCID_EACH_PLANE(size, n, c)
    {
        const T* from = columns + n * columns_at.at[0] + c * (KH * KW) * step;
        Wide sum = Wide();
        #pragma unroll (lucid_unrolls<Down::over, Down::over * Across::over>)
        for (int s = 0; s < Down::over; ++s) {
            int v, i;
            if (!Down::window_over(row, s, size.down, v, i)) continue;
            #pragma unroll (lucid_unrolls<Across::over, Across::over>)
            for (int t = 0; t < Across::over; ++t) {
                int u, j;
                if (!Across::window_over(column, t, size.across, u, j)) continue;
                const int position = v * size.across + u;
                const long long at = (i * KW + j) * step + position * columns_at.at[2];
                sum += lucid_cast<Wide>(lucid_load<1>(from + at)[0]);
            }
        }
        x[size.plane(n, c) * size.pixels() + pixel] = lucid_cast<T>(sum);
    }
}
