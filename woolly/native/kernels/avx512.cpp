// avx512.cpp: every kernel, compiled for one instruction set. Only the set itself is visible outside.
#include "lanes_avx512.h"

#include "all.inl"
