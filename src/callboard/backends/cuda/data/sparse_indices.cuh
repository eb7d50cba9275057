// FOR_INDEX(type) of a file, compiled in parts, one for each type of indices.

#ifdef FOR_i32
FOR_INDEX(int)
#endif
#ifdef FOR_i64
FOR_INDEX(long long)
#endif
