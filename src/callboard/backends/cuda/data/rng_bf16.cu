// Random numbers of bf16.

#include "rng_fills.cuh"

OF_TYPE(Brain)
