// pick.inl: from one row of logits to a token. engine/sampling/stages.py defines the result; this gives the same token, always.
//
//   mask         the tokens that it allows; the logits of all others become minus infinity, which no other logit is
//   top_k        the k largest logits
//   top_p        the heaviest tokens that together reach p times the total; a weight is exp(logit - largest)
//   min_p        the tokens of at least p times the largest weight
//   temperature  weight = exp((logit - largest) / t)
//   draw         ids ascending, the first whose running weight exceeds u times the total
//
// Each filter finds an edge (a value, and for its equals the last id that stays) and then walks the tokens once, so the
// ids stay ascending. A total is sixteen float64 lanes, a token adds to lane id mod 16, ids ascending; then the tree
// i + 8, + 4, + 2, + 1. A running sum is one float64. Equal values go by the lower id.
// Sorting everything is the slow part, so what cannot matter is left out first; that never changes what is found.

namespace {

constexpr int STRETCHES = 64;     // top_k takes the maxima of 64 stretches of 16 lanes

// The tokens still in the race, ids ascending; `order` and `spare` are for sorting.
struct Race {
    int32_t*  id;
    float*    logit;
    float*    weight;
    uint64_t* order;
    uint64_t* spare;
    int       count;
};

// What is sorted: in the high half a number that ascends where the floats descend (the two zeros are equal), in the low
// half the index.
LANE uint64_t entry(float x, int index) {
    const float y = x + 0.0f;
    uint32_t bits;
    memcpy(&bits, &y, 4);
    return static_cast<uint64_t>(bits >> 31 ? bits : ~bits & 0x7fffffffu) << 32 | static_cast<uint32_t>(index);
}
LANE int index_of(uint64_t entry) { return static_cast<int>(entry & 0xffffffffu); }

// Sorts n entries by value, equal ones as they stand: the least significant byte first, four passes. Both arrays are used;
// the result is the one that is returned.
const uint64_t* sorted(uint64_t* order, uint64_t* spare, int n) noexcept {
    int32_t place[4][257] = {};
    for (int i = 0; i < n; i++)
        for (int byte = 0; byte < 4; byte++) place[byte][(order[i] >> (32 + 8 * byte) & 255) + 1]++;
    for (int byte = 0; byte < 4; byte++) {
        for (int b = 0; b < 256; b++) place[byte][b + 1] += place[byte][b];
        for (int i = 0; i < n; i++) spare[place[byte][order[i] >> (32 + 8 * byte) & 255]++] = order[i];
        uint64_t* swap = order;
        order = spare;
        spare = swap;
    }
    return order;
}

// Drops all but those that stay; the test is of the index.
template <class Stays> LANE void filter(Race& r, const Stays& stays) {
    int n = 0;
    for (int i = 0; i < r.count; i++)
        if (stays(i)) {
            r.id[n] = r.id[i];
            r.logit[n] = r.logit[i];
            n++;
        }
    r.count = n;
}

// weight = exp((logit - largest) / t); the largest is of those in the race: among equal weights top_p may drop it
void weigh(Race& r, float temperature) noexcept {
    f32x16 most = splat(-__builtin_inff());
    for (int i = 0; i < r.count; i += 16) most = max(most, keep(load(r.logit + i, r.count - i), r.count - i, most));
    const f32x16 high = splat(largest(most)), t = splat(temperature);
    for (int i = 0; i < r.count; i += 16) {
        const int left = r.count - i;
        store(r.weight + i, exp(div(sub(load(r.logit + i, left), high), t)), left);
    }
}

double total(const Race& r) noexcept {
    double lane[16] = {};
    for (int i = 0; i < r.count; i++) lane[r.id[i] & 15] += static_cast<double>(r.weight[i]);
    for (int k = 8; k > 0; k /= 2)
        for (int i = 0; i < k; i++) lane[i] += lane[i + k];
    return lane[0];
}

// A value that at least k logits reach: the k-th of the maxima of stretches, of each lane on its own.
float reached_by(const float* x, int n, int k, Race& r) noexcept {
    const int stretch = (n + 16 * STRETCHES - 1) / (16 * STRETCHES) * 16;
    const f32x16 nothing = splat(-__builtin_inff());
    for (int s = 0; s < STRETCHES; s++) {
        f32x16 best = nothing;
        for (int i = s * stretch; i < (s + 1) * stretch && i < n; i += 16) best = max(best, keep(load(x + i, n - i), n - i, nothing));
        store(r.weight + 16 * s, best);
    }
    for (int i = 0; i < 16 * STRETCHES; i++) r.order[i] = entry(r.weight[i], i);
    return r.weight[index_of(sorted(r.order, r.spare, 16 * STRETCHES)[k - 1])];
}

constexpr float MASKED = -__builtin_inff();      // a logit that a mask took away

LANE void enter(Race& r, const float* x, int i) {
    r.id[r.count] = i;
    r.logit[r.count] = x[i];
    r.count++;
}

// All tokens whose logit is at least `least`, and that are allowed.
void enter_all(const float* x, int n, float least, Race& r) noexcept {
    r.count = 0;
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        const f32x16 m = max(max(load(x + i), load(x + i + 16)), max(load(x + i + 32), load(x + i + 48)));
        if (largest(m) < least) continue;
        for (int j = i; j < i + 64; j++)
            if (x[j] >= least && x[j] != MASKED) enter(r, x, j);
    }
    for (; i < n; i++)
        if (x[i] >= least && x[i] != MASKED) enter(r, x, i);
}

void top_k(const float* x, int n, int k, Race& r) noexcept {
    const bool all = k == 0 || k >= n;
    enter_all(x, n, !all && k <= 16 * STRETCHES && n >= 64 * STRETCHES ? reached_by(x, n, k, r) : MASKED, r);
    if (all || k >= r.count) return;
    for (int i = 0; i < r.count; i++) r.order[i] = entry(r.logit[i], i);
    const int edge = index_of(sorted(r.order, r.spare, r.count)[k - 1]);
    const float last = r.logit[edge];
    filter(r, [&](int i) { return r.logit[i] > last || (r.logit[i] == last && i <= edge); });
}

void top_p(Race& r, double p) noexcept {
    if (p >= 1.0) return;
    weigh(r, 1.0f);
    const double all = total(r), goal = p * all;
    // The tokens lighter than this make up at most half of what may be left out, so the edge is not among them. Should
    // rounding say otherwise (p within 1e-11 of 1), everything is sorted.
    float light = static_cast<float>(0.5 * (all - goal) / r.count);
    for (;;) {
        int n = 0;
        for (int i = 0; i < r.count; i++)
            if (r.weight[i] >= light) r.order[n++] = entry(r.weight[i], i);
        const uint64_t* order = sorted(r.order, r.spare, n);
        double running = 0.0;
        for (int j = 0; j < n; j++) {
            const int edge = index_of(order[j]);
            running += static_cast<double>(r.weight[edge]);
            if (running < goal) continue;
            const float last = r.weight[edge];
            return filter(r, [&](int i) { return r.weight[i] > last || (r.weight[i] == last && i <= edge); });
        }
        if (light <= 0.0f) return;
        light = 0.0f;
    }
}

void min_p(Race& r, double p) noexcept {
    if (p <= 0.0) return;
    weigh(r, 1.0f);
    float most = 0.0f;
    for (int i = 0; i < r.count; i++) most = r.weight[i] > most ? r.weight[i] : most;
    const double least = p * static_cast<double>(most);
    filter(r, [&](int i) { return static_cast<double>(r.weight[i]) >= least; });
}

int draw(const Race& r, double u) noexcept {
    const double goal = u * total(r);
    double running = 0.0;
    for (int i = 0; i < r.count; i++) {
        running += static_cast<double>(r.weight[i]);
        if (running > goal) return r.id[i];
    }
    return r.id[r.count - 1];
}

LANE bool finite(const float* x, int n) {
    i32x16 size = zero();
    for (int i = 0; i < n; i += 16) size = max(size, magnitude(load(x + i, n - i)));
    return highest(size) < 0x7f800000;
}

// The largest logit's id, ties to the lowest; -1 where a mask allows none.
LANE int best(const float* x, int n) {
    f32x16 most = splat(MASKED);
    for (int i = 0; i < n; i += 16) most = max(most, keep(load(x + i, n - i), n - i, most));
    const float high = largest(most);
    if (high == MASKED) return -1;
    int i = 0;
    while (x[i] != high) i++;
    return i;
}

int pick(const PickArgs& a) noexcept {
    const int n = a.vocab;
    if (n < 1 || !finite(a.logits, n)) return -1;
    const int64_t room = n + PICK_SLACK;
    uint64_t* pairs = reinterpret_cast<uint64_t*>(a.scratch);
    int32_t* words = reinterpret_cast<int32_t*>(pairs + 2 * room);
    const float* x = a.logits;
    if (a.mask) {
        float* allowed = reinterpret_cast<float*>(words + 3 * room);
        for (int i = 0; i < n; i++) allowed[i] = a.mask[i / 32] >> (i % 32) & 1 ? x[i] : MASKED;
        x = allowed;
    }
    if (a.how->temperature == 0.0f) return best(x, n);
    Race r = {words, reinterpret_cast<float*>(words + room), reinterpret_cast<float*>(words + 2 * room), pairs, pairs + room, 0};
    top_k(x, n, a.how->top_k, r);
    if (r.count == 0) return -1;
    top_p(r, a.how->top_p);
    min_p(r, a.how->min_p);
    weigh(r, a.how->temperature);
    return draw(r, a.u);
}

}  // namespace
