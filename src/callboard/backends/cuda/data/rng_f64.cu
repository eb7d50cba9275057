// Random numbers of f64.

#include "rng_fills.cuh"

OF_TYPE(double)
