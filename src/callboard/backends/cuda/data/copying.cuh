// What copies of strided arrays get, also those that convert.

const int AXES = 32;

struct CopyArgs {  // strides in items
    const char* src;
    char* out;
    i64 count;
    i64 extent[AXES], src_step[AXES], out_step[AXES];
    int axes;
};
