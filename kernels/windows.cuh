// How windows slide along an axis of an image: which windows a pixel is in, and where in them.
#ifndef LUCID_WINDOWS_CUH
#define LUCID_WINDOWS_CUH

#include "index.cuh"

// Images (n, c, h, w) and how many windows they have, down and across.
struct lucid_images {
    int images, channels, height, width, down, across;
    LUCID_FN int windows() const { return down * across; }
    LUCID_FN int pixels() const { return height * width; }
    LUCID_FN long long plane(int n, int c) const { return (long long)n * channels + c; }
};

// Where an element lies: strides of images, channels, rows and columns.
typedef lucid_strides<long long, 4> lucid_image_strides;

LUCID_FN long long lucid_plane_at(const lucid_image_strides& strides, int n, int c)
{
    return n * strides.at[0] + c * strides.at[1];
}

LUCID_FN long long lucid_pixel_at(const lucid_image_strides& strides, int row, int column)
{
    return row * strides.at[2] + column * strides.at[3];
}

// A thread's planes: grid and block go over channels by y, and over images by z.
#define LUCID_EACH_PLANE(size, n, c) \
    for (int n = blockIdx.z; n < size.images; n += gridDim.z) \
        for (int c = blockIdx.y * blockDim.y + threadIdx.y; c < size.channels; \
             c += gridDim.y * blockDim.y)

// How often a loop of N turns is unrolled, M steps altogether: more than nine addresses at a time
// cost registers that whole blocks would have.
template <int N, int M> constexpr int lucid_unrolls = M <= 9 ? N : 1;

#define LUCID_WINDOW int KH, int KW, int SH, int SW, int PH, int PW, int DH, int DW
#define LUCID_AXES \
    typedef lucid_axis<KH, SH, PH, DH> Down; \
    typedef lucid_axis<KW, SW, PW, DW> Across

// One axis: kernel size K, stride S, padding P, dilation D. Known when a kernel is compiled, so that
// loops over positions unroll and no pixel pays for a division.
template <int K, int S, int P, int D>
struct lucid_axis {
    static constexpr int over = (K - 1) * D / S + 1;  // windows that a pixel is in, at most

    // The pixel under a position of a window.
    static LUCID_FN int pixel(int window, int position) { return window * S - P + position * D; }

    // The t-th window, from the last, that a pixel may be in, and the pixel's position in it; false
    // where there is none.
    static LUCID_FN bool window_over(int pixel, int t, int windows, int& window, int& position)
    {
        window = (pixel + P) / S - t;
        const int from_start = pixel + P - window * S;
        position = from_start / D;
        return window >= 0 && window < windows && from_start % D == 0 && position < K;
    }

    // How many pixels of a window count: those of the image, or of the padded image. (D is 1.)
    template <bool PADDING>
    static LUCID_FN int counted(int window, int pixels)
    {
        const int start = window * S - P, margin = PADDING ? P : 0;
        return min(start + K, pixels + margin) - max(start, -margin);
    }
};

#endif
