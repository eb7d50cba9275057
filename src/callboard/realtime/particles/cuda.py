"""CUDA texts of particles."""

__all__ = ["CONTACTS", "EMITS", "KICK", "MOVES", "PLACES", "TICKS"]

MOVES = r"""
__device__ float3 at(const float *p, int i, int n) { return make_float3(p[i], p[n + i], p[2 * n + i]); }
__device__ void put(float *p, int i, int n, float3 q) { p[i] = q.x; p[n + i] = q.y; p[2 * n + i] = q.z; }
__device__ float3 plus(float3 a, float3 b, float s) { return make_float3(a.x + b.x * s, a.y + b.y * s, a.z + b.z * s); }
__device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

__device__ float3 acceleration(float3 x, float3 v, float mass, const float *world, const float *fields, int f) {
    const float3 gravity = make_float3(world[0], world[1], world[2]);
    float3 a = plus(mass ? make_float3(0.0f, 0.0f, 0.0f) : gravity, v, -world[3]);
    for (int k = 0; k < f; ++k) {
        const float *r = fields + 12 * k;
        const int kind = (int)r[0];
        const float3 c = make_float3(r[1], r[2], r[3]), o = make_float3(r[4], r[5], r[6]);
        const float3 to = plus(c, x, -1.0f);
        if (kind == 1) {
            const float square = dot(to, to) + r[8] * r[8];
            a = plus(a, to, r[7] / (square * sqrtf(square)));
        } else if (kind == 2) {
            a = plus(a, to, r[7]);
        } else if (kind == 3) {
            const float3 d = plus(x, c, -1.0f);
            const float3 cross = make_float3(o.y * d.z - o.z * d.y, o.z * d.x - o.x * d.z, o.x * d.y - o.y * d.x);
            a = plus(a, cross, r[7]);
        } else if (kind == 4) {
            a = plus(a, plus(o, v, -1.0f), r[7]);
        }
    }
    return mass ? plus(gravity, a, 1.0f / mass) : a;
}

__device__ float clamped(float p, float &u, float low, float high, float left) {
    if ((p < low && u < 0.0f) || (p > high && u > 0.0f)) u *= -left;
    return fminf(fmaxf(p, low), high);
}

__device__ void stopped(float3 &x, float3 &v, const float *r) {
    const int kind = (int)r[0];
    const float left = r[7];
    if (kind == 4) {
        x.x = clamped(x.x, v.x, r[1], r[4], left);
        x.y = clamped(x.y, v.y, r[2], r[5], left);
        x.z = clamped(x.z, v.z, r[3], r[6], left);
        return;
    }
    if (kind == 0) return;
    float3 normal = make_float3(r[1], r[2], r[3]);
    float depth;
    if (kind == 1) {
        depth = dot(x, normal) - r[4];
    } else {
        const float sign = kind == 2 ? 1.0f : -1.0f;
        const float3 from = plus(x, normal, -1.0f);
        const float distance = sqrtf(dot(from, from));
        depth = sign * (distance - r[4]);
        const float factor = sign / fmaxf(distance, 1e-12f);
        normal = make_float3(from.x * factor, from.y * factor, from.z * factor);
    }
    if (depth >= 0.0f) return;
    x = plus(x, normal, -depth);
    const float along = dot(v, normal);
    if (along < 0.0f) {
        const float3 slid = plus(v, normal, -along);
        const float slip = 1.0f - r[8];
        v = plus(make_float3(slid.x * slip, slid.y * slip, slid.z * slip), normal, -left * along);
    }
}

extern "C" __global__ void advance(
    float *px, float *pv, float *life, double *clock, const float *masses, const float *step, const float *world,
    const float *fields, const float *colliders, int n, int f, int c, int method, int mortal, int massive, int ticking
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float dt = step[0], half = 0.5f * dt, mass = massive ? masses[i] : 0.0f;
    if (ticking && i == 0) clock[0] += (double)dt;
    float3 x = at(px, i, n), v = at(pv, i, n);
    if (mortal) {
        const float left = life[i] - dt;
        life[i] = left;
        if (left <= 0.0f) {
            put(pv, i, n, make_float3(0.0f, 0.0f, 0.0f));
            return;
        }
    }
    const float3 a = acceleration(x, v, mass, world, fields, f);
    if (method == 0) {
        v = plus(v, a, dt);
        x = plus(x, v, dt);
    } else if (method == 1) {
        v = plus(v, a, half);
        x = plus(x, v, dt);
        v = plus(v, acceleration(x, v, mass, world, fields, f), half);
    } else {
        const float3 va = plus(v, a, half), b = acceleration(plus(x, v, half), va, mass, world, fields, f);
        const float3 vb = plus(v, b, half), c3 = acceleration(plus(x, va, half), vb, mass, world, fields, f);
        const float3 vc = plus(v, c3, dt), d = acceleration(plus(x, vb, dt), vc, mass, world, fields, f);
        const float sixth = dt / 6.0f;
        x = plus(x, plus(plus(plus(v, va, 2.0f), vb, 2.0f), vc, 1.0f), sixth);
        v = plus(v, plus(plus(plus(a, b, 2.0f), c3, 2.0f), d, 1.0f), sixth);
    }
    for (int k = 0; k < c; ++k) stopped(x, v, colliders + 12 * k);
    put(px, i, n, x);
    put(pv, i, n, v);
}
"""

EMITS = r"""
__device__ float drawn(unsigned seed, unsigned emitter, unsigned serial, unsigned axis) {
    const unsigned fixed = seed * 0x9E3779B9u ^ (emitter + 1) * 0x85EBCA6Bu ^ (axis + 1) * 0x27D4EB2Fu;
    unsigned h = serial * 0xC2B2AE35u ^ fixed;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    h ^= h >> 16;
    return (float)(h >> 8) * 1.1920928955078125e-7f - 1.0f;
}

__device__ long long before(const float *row, double time) {
    return (long long)floor((row[0] != 0.0f ? (double)row[7] : 0.0) * time);
}

extern "C" __global__ void emit(
    float *px, float *pv, float *life, float *mass, float *attributes, const int *rank, const double *clock,
    const float *step, const float *emitters, const float *born, int n, int e, int k, int m, unsigned seed
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || life[i] > 0.0f) return;
    long long place = rank[i];
    for (int from = 0; from < e; ++from) {
        const float *row = emitters + 12 * from;
        const long long first = before(row, clock[0]), count = before(row, clock[0] + (double)step[0]) - first;
        if (place < count) {
            const unsigned serial = (unsigned)(first + place);
            for (int axis = 0; axis < 3; ++axis) {
                px[axis * n + i] = row[1 + axis] + row[8] * drawn(seed, from, serial, axis);
                pv[axis * n + i] = row[4 + axis] + row[9] * drawn(seed, from, serial, 3 + axis);
            }
            life[i] = row[10];
            mass[i] = row[11];
            for (int a = 0; a < k && i < m; ++a) attributes[a * m + i] = born[from * k + a];
            return;
        }
        place -= count;
    }
}
"""

TICKS = r"""
extern "C" __global__ void tick(
    double *clock, const int *rank, const int *free, const float *step, const float *emitters, int n, int e
) {
    long long wanted = 0;
    for (int k = 0; k < e; ++k) {
        const double rate = emitters[12 * k] != 0.0f ? (double)emitters[12 * k + 7] : 0.0;
        wanted += (long long)floor(rate * (clock[0] + (double)step[0])) - (long long)floor(rate * clock[0]);
    }
    const long long room = rank[n - 1] + free[n - 1], made = wanted < room ? wanted : room;
    clock[0] += (double)step[0];
    clock[1] += (double)made;
    clock[2] += (double)(wanted - made);
}
"""

CONTACTS = r"""
extern "C" __global__ void contacts(
    const float *x, const float *v, const float *life, const int *order, const int *starts, float *out, int n, int s,
    float diameter, float stiffness, float damping
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float px = x[i], py = x[n + i], pz = x[2 * n + i];
    const int cx = (int)floorf(px / diameter), cy = (int)floorf(py / diameter), cz = (int)floorf(pz / diameter);
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int k = 0; k < 27 && life[i] > 0.0f; ++k) {
        const int ox = cx + k / 9 - 1, oy = cy + k / 3 % 3 - 1, oz = cz + k % 3 - 1;
        const unsigned where = ((unsigned)ox * 73856093u ^ (unsigned)oy * 19349663u ^ (unsigned)oz * 83492791u)
                             & (unsigned)(s - 2);
        for (int l = starts[where]; l < starts[where + 1]; ++l) {
            const int j = order[l];
            const float qx = x[j], qy = x[n + j], qz = x[2 * n + j], dx = px - qx, dy = py - qy, dz = pz - qz;
            const float distance = sqrtf(dx * dx + dy * dy + dz * dz);
            if (distance >= diameter || distance <= 1e-12f || life[j] <= 0.0f) continue;
            if ((int)floorf(qx / diameter) != ox || (int)floorf(qy / diameter) != oy ||
                (int)floorf(qz / diameter) != oz) continue;
            const float ux = v[i] - v[j], uy = v[n + i] - v[n + j], uz = v[2 * n + i] - v[2 * n + j];
            const float apart = (ux * dx + uy * dy + uz * dz) / distance;
            const float push = fmaxf(stiffness * (diameter - distance) - damping * apart, 0.0f) / distance;
            ax += push * dx, ay += push * dy, az += push * dz;
        }
    }
    out[i] = ax, out[n + i] = ay, out[2 * n + i] = az;
}
"""

KICK = r"""
extern "C" __global__ void kick(
    float *v, const float *force, const float *mass, const float *step, int n, float part
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3 * n) v[i] += force[i] * (step[0] * part) / mass[i % n];
}
"""

PLACES = r"""
extern "C" __global__ void place(
    float *x, float *v, float *life, float *mass, float *attributes, const int *rank, const float *given, int n, int k,
    int m, int w, int c
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || life[i] > 0.0f || rank[i] >= c) return;
    const float *from = given + rank[i];
    for (int axis = 0; axis < 3; ++axis) {
        x[axis * n + i] = from[(long long)axis * c];
        v[axis * n + i] = from[(3ll + axis) * c];
    }
    life[i] = from[6ll * c];
    mass[i] = from[7ll * c];
    for (int a = 0; a < w - 8; ++a) attributes[(long long)a * m + i] = from[(8ll + a) * c];
}
"""
