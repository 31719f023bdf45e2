// avxvnni.cpp: every kernel, compiled for one instruction set. Only the set itself is visible outside.
#include "lanes_avxvnni.h"

#include "all.inl"
