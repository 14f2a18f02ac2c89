// Thrust's namespace, in which CuPy keeps complex numbers. Every source of CuPy's own includes this
// first, so that what its kernels call beside lucid_gpu's is included here, too.
#ifndef DRIVER_THRUST_NAMESPACE_H
#define DRIVER_THRUST_NAMESPACE_H

#define THRUST_NAMESPACE_BEGIN namespace thrust {
#define THRUST_NAMESPACE_END }

#include "functions_on_host.h"

#endif
