// lanes.cpp: every function of a lanes file against its twin in lanes_scalar.h, over numbers that are easily got wrong:
// ties, zeros of both signs, subnormals, infinities, NaN, integers beyond an int32. The kernels do not meet all of them.
// Partial loads end at the end of a page with nothing behind it, and partial stores must leave the bytes behind as they are.
// Compiled by test_lanes.py with -DLANES='"lanes_SET.h"', and -DEMULATED='"SET.h"' where the machine does not have it.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace plain {
#include "lanes_scalar.h"
}
#undef WOOLLY_SET
#undef LANE
#undef INLINE
namespace vectors {
#if defined(EMULATED)
#include EMULATED
#endif
#include LANES
}

namespace {

bool same(const uint8_t* a, const uint8_t* b, bool floats) {
    for (int i = 0; i < 128; i += 4) {
        uint32_t x, y;
        memcpy(&x, a + i, 4);
        memcpy(&y, b + i, 4);
        const bool both_nan = (x & 0x7fffffffu) > 0x7f800000u && (y & 0x7fffffffu) > 0x7f800000u;
        if (x != y && !(floats && both_nan)) return false;
    }
    return true;
}

// The statement writes to `out`, once with the names of each file; what it leaves alone must stay.
#define BOTH(FLOATS, ...)                                         \
    do {                                                          \
        uint8_t a[128], b[128];                                   \
        memset(a, 0xa5, 128);                                     \
        memset(b, 0xa5, 128);                                     \
        { using namespace plain; uint8_t* out = a; __VA_ARGS__; } \
        { using namespace vectors; uint8_t* out = b; __VA_ARGS__; } \
        if (!same(a, b, FLOATS)) return #__VA_ARGS__;             \
    } while (0)
#define FLOATS(...) BOTH(true, store(reinterpret_cast<float*>(out), __VA_ARGS__))
#define INTEGERS(...) BOTH(false, store(reinterpret_cast<int32_t*>(out), __VA_ARGS__))
#define BYTES(...) BOTH(false, store(out, __VA_ARGS__))
#define NUMBER(...) BOTH(false, const int32_t number = __VA_ARGS__; memcpy(out, &number, 4))

struct Random {
    uint64_t state = 1;
    uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 32);
    }
};

const float SPECIAL[] = {0.0f, -0.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 126.5f, 127.5f, -1.0f, 0x1p31f, -0x1p31f, 0x1.fffffep30f, -0x1.000002p31f,
                         3e9f, -3e9f, 1e38f, -3e38f, INFINITY, -INFINITY, NAN, -NAN, 0x1p-149f, -1e-40f, 0x1p-126f, 65504.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-24f, 0x1.002p0f};

float any_float(Random& r) {
    if (r.next() % 2) return SPECIAL[r.next() % (sizeof SPECIAL / sizeof *SPECIAL)];
    const uint32_t bits = r.next();
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
// what store_f16 may be given
float half_float(Random& r) {
    const float x = any_float(r);
    return std::isnan(x) ? NAN : std::isinf(x) ? 1.0f : std::fmin(65504.0f, std::fmax(-65504.0f, r.next() % 2 ? std::ldexp(x, -static_cast<int>(r.next() % 150)) : x));
}

const char* arithmetic(const float* x, const float* y, const float* z) {
    FLOATS(add(load(x), load(y)));
    FLOATS(sub(load(x), load(y)));
    FLOATS(mul(load(x), load(y)));
    FLOATS(div(load(x), load(y)));
    FLOATS(fma(load(x), load(y), load(z)));
    FLOATS(max(load(x), load(y)));
    FLOATS(min(load(x), load(y)));
    FLOATS(swapped(load(x)));
    FLOATS(splat(x[3]));
    INTEGERS(magnitude(load(x)));
    INTEGERS(round(load(x)));
    return nullptr;
}

const char* integers(const int32_t* n, const uint8_t* w) {
    const int8_t* bytes = reinterpret_cast<const int8_t*>(w);
    INTEGERS(zero());
    INTEGERS(load(reinterpret_cast<const int32_t*>(w)));
    INTEGERS(splat(n[0]));
    INTEGERS(add(load_i8(bytes), load_u8(w + 16)));
    INTEGERS(sub(load_i8(bytes), load_u8(w + 16)));
    INTEGERS(max(load_i8(bytes), load_i8(bytes + 16)));
    INTEGERS(max(splat(n[0]), splat(n[1])));
    INTEGERS(shifted<8>(splat(n[0])));
    INTEGERS(field<0, 15>(splat(n[0])));
    INTEGERS(field<6, 3>(splat(n[0])));
    FLOATS(to_f32(splat(n[0])));
    FLOATS(to_f32(load_i8(bytes)));
    FLOATS(pow2(splat(n[0])));
    FLOATS(pow2(load_i8(bytes)));
    NUMBER(highest(load_i8(bytes)));
    NUMBER(total(load_i8(bytes)));
    BYTES(chosen(w, field<0, 15>(load(w))));
    BYTES(signed_codes<0>(43, field<0, 31>(load(w)), load(w)));
    BYTES(signed_codes<5>(43, field<0, 31>(load(w)), load(w)));
    BYTES(signed_codes<7>(62, field<0, 31>(load(w)), load(w)));
    uint64_t table[256];
    for (int i = 0; i < 256; i++) table[i] = (i + 1) * 0x0123456789abcdefu;
    BYTES(look_up(table, w).low);
    BYTES(look_up(table, w).high);
    BYTES(look_up(reinterpret_cast<const uint32_t*>(table), w));
    return nullptr;
}

// A mask may have only the bits that a shift leaves of a byte: some sets shift them in pairs.
template <int SHIFT, int MASK> const char* masked(const uint8_t* w) {
    if constexpr (((SHIFT < 0 ? 255 << -SHIFT : 255 >> SHIFT) & MASK) == MASK) BYTES(field<SHIFT, MASK>(load(w)));
    return nullptr;
}
template <int SHIFT> const char* fields(const uint8_t* w) {
    for (const char* wrong : {masked<SHIFT, 1>(w), masked<SHIFT, 2>(w), masked<SHIFT, 3>(w), masked<SHIFT, 4>(w), masked<SHIFT, 15>(w), masked<SHIFT, 16>(w), masked<SHIFT, 48>(w)})
        if (wrong) return wrong;
    if constexpr (SHIFT < 7) return fields<SHIFT + 1>(w);
    else return nullptr;
}

template <int I, int LENGTH, class Sum, class CodesOf> void take(Sum& sum, const uint8_t (*w)[64], const int8_t* x, const CodesOf& codes_of) {
    if constexpr (I < LENGTH) {
        sum.template take<I>(codes_of(vectors::load(w[I])), x + 4 * I);
        take<I + 1, LENGTH>(sum, w, x, codes_of);
    }
}

// by its definition: the two files differ in what is left to whoever starts the sum
template <int MAX_CODE, int LENGTH> const char* dots(Random& r) {
    uint8_t w[LENGTH][64];
    int8_t x[4 * LENGTH];
    int32_t all = 0, expected[16] = {}, found[16];
    for (auto& line : w)
        for (uint8_t& v : line) v = static_cast<uint8_t>(r.next() % 4 ? r.next() % (MAX_CODE + 1) : r.next() % 2 * MAX_CODE);
    for (int8_t& v : x) {
        v = static_cast<int8_t>(r.next() % 4 ? static_cast<int>(r.next() % 255) - 127 : r.next() % 2 ? 127 : -127);
        all += v;
    }
    for (int lane = 0; lane < 16; lane++)
        for (int i = 0; i < 4 * LENGTH; i++) expected[lane] += (w[i / 4][4 * lane + i % 4] - (MAX_CODE == 255 ? 128 : 0)) * x[i];
    using Sum = vectors::Dots<MAX_CODE, LENGTH>;
    Sum sum;
    sum.start(vectors::splat(static_cast<int32_t>(-Sum::ZERO_POINT * all)));
    take<0, LENGTH>(sum, w, x, [](auto codes) { return codes; });
    vectors::store(found, sum.total());
    if (memcmp(expected, found, sizeof found)) return "Dots";
    if constexpr (MAX_CODE == 255 && requires { typename Sum::Signed; }) {
        alignas(64) int32_t negative[16] = {};
        for (int lane = 0; lane < 16; lane++)
            for (int i = 0; i < 4 * LENGTH; i++)
                if (const int v = w[i / 4][4 * lane + i % 4] - 128; v < 0) negative[lane] -= v;
        sum.start(Sum::kept(reinterpret_cast<const uint8_t*>(negative)));
        take<0, LENGTH>(sum, w, x, [](auto codes) { return Sum::apart(codes); });
        vectors::store(found, sum.total());
        if (memcmp(expected, found, sizeof found)) return "Dots of bytes apart";
    }
    return nullptr;
}

// `end` is the last byte that may be touched, and one
const char* parts(const float* x, const float* h, const int32_t* n, uint8_t* end) {
    for (int count = -3; count <= 18; count++) {
        const size_t here = count < 0 ? 0 : count > 16 ? 16 : static_cast<size_t>(count);
        float* f = reinterpret_cast<float*>(end) - here;
        memcpy(f, x, 4 * here);
        FLOATS(load(f, count));
        FLOATS(keep(load(x), count, load(h)));
        BOTH(true, store(reinterpret_cast<float*>(out), load(x), count));
        uint16_t* half = reinterpret_cast<uint16_t*>(end) - here;
        memcpy(half, x, 2 * here);
        FLOATS(load_f16(half, count));
        BOTH(false, store_f16(reinterpret_cast<uint16_t*>(out), load(h), count));
        int8_t* byte = reinterpret_cast<int8_t*>(end) - here;
        memcpy(byte, x, here);
        INTEGERS(load_i8(byte, count));
        BOTH(false, store_i8(reinterpret_cast<int8_t*>(out), splat(n[0]), count));
        BOTH(false, store_i8(reinterpret_cast<int8_t*>(out), load_i8(reinterpret_cast<const int8_t*>(x)), count));
    }
    uint16_t* whole = reinterpret_cast<uint16_t*>(end) - 16;
    memcpy(whole, x, 32);
    FLOATS(load_f16(whole));
    FLOATS(splat_f16(whole));
    FLOATS(load_bf16(whole));
    BYTES(either(load(reinterpret_cast<const uint8_t*>(x)), load(reinterpret_cast<const uint8_t*>(h))));
    return nullptr;
}

}  // namespace

// The statement that differs, or nullptr.
extern "C" __attribute__((visibility("default"))) const char* difference(int rounds) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    uint8_t* memory = static_cast<uint8_t*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE)) return "no memory";
    Random r;
    const char* wrong = nullptr;
    for (int i = 0; i < rounds && !wrong; i++) {
        float x[16], y[16], z[16], h[16];
        int32_t n[2] = {static_cast<int32_t>(r.next()), static_cast<int32_t>(r.next() % 512) - 256};
        uint8_t w[64];
        for (int k = 0; k < 16; k++) x[k] = any_float(r), y[k] = any_float(r), z[k] = any_float(r), h[k] = half_float(r);
        for (uint8_t& v : w) v = static_cast<uint8_t>(r.next());
        const char* found[] = {arithmetic(x, y, z), integers(n, w), fields<-4>(w), dots<2, 8>(r), dots<3, 4>(r), dots<7, 4>(r),
                               dots<15, 8>(r), dots<18, 4>(r), dots<24, 8>(r), dots<30, 8>(r), dots<31, 8>(r), dots<86, 4>(r), dots<124, 8>(r),
                               dots<63, 4>(r), dots<255, 8>(r), parts(x, h, n, memory + page)};
        for (const char* one : found) wrong = wrong ? wrong : one;
    }
    munmap(memory, 2 * page);
    return wrong;
}
