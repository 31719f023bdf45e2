// attention.inl: attention over the cache (cache.inl).
//
//   attend  one tile is up to 16 rows of a sequence and one key-value head with all its query heads. Positions are cut
//           into parts at multiples of PART; each part has its own maximum m, sum l and result o, from scratch:
//             s = fma over dimensions;  p = exp(s - m);  l = 16 lane sums, then the tree;  o = fma over positions
//           and parts are merged in ascending order. So chunks of a prompt and neighbours do not move a bit.
//           Many queries pay for opening the cache: 16 positions of keys, then 16 dimensions of values, become f32 once
//           for all of them and stay in the nearest cache meanwhile.

namespace {

constexpr int ROWS = 16;                    // rows of a tile at the most: they share what they read of the cache
constexpr int TOGETHER = 64;                // query vectors of a tile that walk over a part together, at the most
constexpr int OPEN_VECTORS = 4 * CHAINS;    // so many are many

// What a thread keeps while it works on a tile: scaled queries, running results, the scores of a part, and what is open.
struct Work {
    float *query, *result, *most, *sum, *score, *open;
    int   dim;          // of a head, rounded up to whole vectors
    static int64_t floats(int vectors, int d) {
        const int64_t padded = rounded_up(d, 16), opened = 16 * (padded > PART ? padded : PART);
        return 2 * padded * vectors + 2 * rounded_up(vectors, 16) + int64_t{TOGETHER} * PART + opened;
    }
    Work(uint8_t* scratch, int vectors, int d) : dim(static_cast<int>(rounded_up(d, 16))) {
        query = reinterpret_cast<float*>(scratch);
        result = query + int64_t{vectors} * dim;
        most = result + int64_t{vectors} * dim;
        sum = most + rounded_up(vectors, 16);
        score = sum + rounded_up(vectors, 16);
        open = score + int64_t{TOGETHER} * PART;
    }
};

const char* check_attend(const Args& a) {
    const Operand &q = a.in[0], &s = a.in[1];
    const int heads = static_cast<int>(a.attr[0]);
    if (!is_state(s)) return "needs a cache";
    if (heads < 1 || heads % s.height) return "query heads are no multiple of the cache's heads";
    if (!is_rows(q) || !is_rows(a.out) || q.width != heads * s.width || a.out.width != q.width) return "queries or results have another width";
    return nullptr;
}

size_t scratch_attend(const Args& a) {
    const int vectors = ROWS * static_cast<int>(a.attr[0]) / a.in[1].height;
    return static_cast<size_t>(Work::floats(vectors, a.in[1].width)) * sizeof(float);
}

// A tile for each row and head; the first of every ROWS rows of a sequence does the work of all of them.
Tiles tiles_attend(const Args& a) noexcept { return {int64_t{a.in[1].height} * a.rows, 1}; }

// One part of the cache, of one head: where its pages lie, and how many of its positions each query vector sees. Later
// vectors never see fewer.
struct Part {
    const uint8_t *keys[PART / PAGE], *values[PART / PAGE];
    const uint8_t *next_keys[PART / PAGE];          // of the part after this one, or again of this one
    int  dim, vectors, first;          // vectors [first, first + vectors) of the tile
    bool begins;                       // no part was before
    int  seen[TOGETHER];
    int  positions() const { return seen[vectors - 1]; }
};

static_assert(CHAINS == 1 || CHAINS == 4);

// How much further a pass goes for few vectors, so that there are sums enough to work on while an fma is under way.
template <int C> constexpr int wider = SUMS / C < 1 ? 1 : SUMS / C > 4 ? 4 : SUMS / C;

// The body gets the first of each CHAINS vectors, and how many there are as a constant.
template <class Body> LANE void by_chains(int vectors, const Body& body) {
    int v = 0;
    for (; v + CHAINS <= vectors; v += CHAINS) body(v, Index<CHAINS>{});
    if constexpr (CHAINS > 1) {
        switch (vectors - v) {
            case 3: body(v, Index<3>{}); break;
            case 2: body(v, Index<2>{}); break;
            case 1: body(v, Index<1>{}); break;
        }
    }
}

// Brings a value near before its turn. Pages lie anywhere, so the hardware cannot know which comes next: while keys are
// read, the values of the same part are fetched, and while these are read, the keys of the next.
template <class Cache> LANE void fetch(const uint8_t* piece, int64_t value) { __builtin_prefetch(piece + value * Cache::BYTES, 0, 2); }

// Scores of C vectors for G groups of 16 positions. `key` gives a dimension of a group.
template <int C, int G, class Key> LANE void score_groups(const Work& work, int dim, const float* query, float* score, const Key& key) {
    f32x16 s[C][G];
    unroll<C>([&](auto c) INLINE { unroll<G>([&](auto g) INLINE { s[c.value][g.value] = splat(0.0f); }); });
    for (int i = 0; i < dim; i++)
        unroll<G>([&](auto g) INLINE {
            const f32x16 k = key(g.value, i);
            unroll<C>([&](auto c) INLINE { s[c.value][g.value] = fma(splat(query[c.value * work.dim + i]), k, s[c.value][g.value]); });
        });
    unroll<C>([&](auto c) INLINE { unroll<G>([&](auto g) INLINE { store(score + c.value * PART + 16 * g.value, s[c.value][g.value]); }); });
}

template <class Cache> LANE void scores(const Part& part, const Work& work) {
    by_chains(part.vectors, [&](int v, auto chains) INLINE {
        constexpr int C = chains.value, G = wider<C>;
        const float* query = work.query + int64_t{part.first + v} * work.dim;
        float* score = work.score + int64_t{v} * PART;
        const int groups = (part.seen[v + C - 1] + 15) / 16;
        const auto key_of = [&](int first) INLINE {
            return [&, first](int g, int i) INLINE {
                const int page = (first + g) * 16 / PAGE, group = (first + g) % (PAGE / 16);
                fetch<Cache>(part.values[page], (int64_t{group} * part.dim + i) * 16);
                return Cache::key(part.keys[page], part.dim, group, i);
            };
        };
        int g = 0;
        for (; g + G <= groups; g += G) score_groups<C, G>(work, part.dim, query, score + 16 * g, key_of(g));
        for (; g < groups; g++) score_groups<C, 1>(work, part.dim, query, score + 16 * g, key_of(g));
    });
}

// Many vectors: 16 positions of keys at a time, open.
template <class Cache> LANE void open_scores(const Part& part, const Work& work) {
    for (int g = 0; 16 * g < part.positions(); g++) {
        for (int i = 0; i < part.dim; i++) store(work.open + 16 * i, Cache::key(part.keys[g * 16 / PAGE], part.dim, g % (PAGE / 16), i));
        by_chains(part.vectors, [&](int v, auto chains) INLINE {
            if (16 * g >= part.seen[v + chains.value - 1]) return;
            score_groups<chains.value, 1>(work, part.dim, work.query + int64_t{part.first + v} * work.dim, work.score + int64_t{v} * PART + 16 * g,
                                          [&](int, int i) INLINE { return load(work.open + 16 * i); });
        });
    }
}

// Scores become what exp makes of them; the largest score and the sum of a vector.
LANE void exponentials(float* p, int count, float& high, float& sum) {
    const f32x16 nothing = splat(-__builtin_inff());
    f32x16 m = nothing, l = splat(0.0f);
    for (int j = 0; j < count; j += 16) m = max(m, keep(load(p + j), count - j, nothing));
    high = largest(m);
    for (int j = 0; j < count; j += 16) {
        const f32x16 e = keep(exp(sub(load(p + j), splat(high))), count - j, splat(0.0f));
        store(p + j, e);
        l = add(l, e);
    }
    sum = sum16(l);
}

// o += the values of positions [from, to), weighed, for C vectors and W times 16 dimensions; vector c sees `seen[c]`.
template <int C, int W, class Value> LANE void weigh(const float* score, const int* seen, int from, int to, f32x16 (&o)[C][W], const Value& value_of) {
    const auto take = [&](auto c, auto w, int j, f32x16 value) INLINE {
        o[c.value][w.value] = fma(splat(score[c.value * PART + j]), value, o[c.value][w.value]);
    };
    const int all = seen[0] < to ? seen[0] : to;      // the positions that every one of these vectors sees
    for (int j = from; j < all; j++)
        unroll<W>([&](auto w) INLINE {
            const f32x16 value = value_of(j, w.value);
            unroll<C>([&](auto c) INLINE { take(c, w, j, value); });
        });
    unroll<C>([&](auto c) INLINE {
        for (int j = all > from ? all : from; j < seen[c.value] && j < to; j++) unroll<W>([&](auto w) INLINE { take(c, w, j, value_of(j, w.value)); });
    });
}

// A vector's result so far becomes fma(o, b, result * a); the first part's is o itself.
LANE void merge(const Part& part, float* result, f32x16 o, float a, float b) {
    store(result, part.begins ? o : fma(o, splat(b), mul(load(result), splat(a))));
}

// Page by page, which the nearest cache holds while all dimensions are walked; sums wait in `open` meanwhile.
template <class Cache> LANE void weighed_values(const Part& part, const Work& work, const float* a, const float* b) {
    by_chains(part.vectors, [&](int v, auto chains) INLINE {
        constexpr int C = chains.value;
        const float* score = work.score + int64_t{v} * PART;
        const int *seen = part.seen + v, most = seen[C - 1];
        const auto columns = [&](int i, int from, auto width) INLINE {
            constexpr int W = width.value;
            f32x16 o[C][W];
            const auto sums = [&](auto c, auto w) INLINE { return work.open + c.value * work.dim + i + 16 * w.value; };
            unroll<C>([&](auto c) INLINE { unroll<W>([&](auto w) INLINE { o[c.value][w.value] = from ? load(sums(c, w)) : splat(0.0f); }); });
            weigh<C, W>(score, seen, from, from + PAGE < most ? from + PAGE : most, o, [&](int j, int w) INLINE {
                fetch<Cache>(part.next_keys[from / PAGE], int64_t{j - from} * part.dim + i + 16 * w);
                return Cache::value(part.values[from / PAGE], part.dim, j - from, i + 16 * w, W > 1 ? 16 : part.dim - i);
            });
            unroll<C>([&](auto c) INLINE { unroll<W>([&](auto w) INLINE { store(sums(c, w), o[c.value][w.value]); }); });
        };
        for (int from = 0; from < most; from += PAGE) {
            int i = 0;
            for (; i + 16 * wider<C> <= part.dim; i += 16 * wider<C>) columns(i, from, Index<wider<C>>{});
            for (; i < work.dim; i += 16) columns(i, from, Index<1>{});
        }
        unroll<C>([&](auto c) INLINE {
            if (seen[c.value] <= 0) return;
            for (int i = 0; i < work.dim; i += 16)
                merge(part, work.result + int64_t{part.first + v + c.value} * work.dim + i, load(work.open + c.value * work.dim + i), a[v + c.value], b[v + c.value]);
        });
    });
}

// Many vectors: 16 dimensions of values at a time, open.
template <class Cache> LANE void open_weighed_values(const Part& part, const Work& work, const float* a, const float* b) {
    for (int i = 0; i < part.dim; i += 16) {
        for (int j = 0; j < part.positions(); j++)
            store(work.open + 16 * j, Cache::value(part.values[j / PAGE], part.dim, j % PAGE, i, part.dim - i));
        by_chains(part.vectors, [&](int v, auto chains) INLINE {
            constexpr int C = chains.value;
            f32x16 o[C][1];
            unroll<C>([&](auto c) INLINE { o[c.value][0] = splat(0.0f); });
            weigh<C, 1>(work.score + int64_t{v} * PART, part.seen + v, 0, PART, o, [&](int j, int) INLINE { return load(work.open + 16 * j); });
            unroll<C>([&](auto c) INLINE {
                if (part.seen[v + c.value] > 0) merge(part, work.result + int64_t{part.first + v + c.value} * work.dim + i, o[c.value][0], a[v + c.value], b[v + c.value]);
            });
        });
    }
}

template <class Cache, bool OPEN> __attribute__((noinline)) void attend_part(const Part& part, const Work& work) {
    if constexpr (OPEN) open_scores<Cache>(part, work);
    else scores<Cache>(part, work);
    float a[TOGETHER], b[TOGETHER];        // the weights of what was before and of this part: exp(m - max of both)
    for (int v = 0; v < part.vectors; v++) {
        if (part.seen[v] <= 0) continue;
        float high, sum, &m = work.most[part.first + v], &l = work.sum[part.first + v];
        exponentials(work.score + int64_t{v} * PART, part.seen[v], high, sum);
        if (!part.begins) {
            const float both = m > high ? m : high;
            a[v] = largest(exp(splat(m - both)));
            b[v] = largest(exp(splat(high - both)));
            sum = __builtin_fmaf(sum, b[v], l * a[v]);
            high = both;
        }
        m = high;
        l = sum;
    }
    if constexpr (OPEN) open_weighed_values<Cache>(part, work, a, b);
    else weighed_values<Cache>(part, work, a, b);
}

// Rows [r, end) of one span and one key-value head.
template <class Cache> LANE void attend_rows(const Args& a, int64_t r, int64_t end, int head, uint8_t* scratch) {
    const Operand& state = a.in[1];
    const int dim = state.width, group = static_cast<int>(a.attr[0]) / state.height, vectors = static_cast<int>(end - r) * group;
    const Work work(scratch, vectors, dim);
    const f32x16 scale = splat(static_cast<float>(a.attr[1]));
    for (int v = 0; v < vectors; v++) {
        const float* q = a.in[0].row<const float>(r + v / group) + (int64_t{head} * group + v % group) * dim;
        for (int i = 0; i < dim; i += 16) store(work.query + int64_t{v} * work.dim + i, mul(load(q + i, dim - i), scale));
    }

    const int span = a.step->span_of[r], end_position = a.step->position[end - 1] + 1;
    const int64_t at = state.stride + head * (Cache::keys(dim) + Cache::values(dim));
    for (int base = 0; base < end_position; base += PART) {
        Part part{};
        part.dim = dim;
        part.begins = base == 0;
        for (int p = 0; p < PART / PAGE && base + p * PAGE < end_position; p++) {
            part.keys[p] = a.step->page(span, base + p * PAGE) + at;
            part.values[p] = part.keys[p] + Cache::keys(dim);
        }
        for (int p = 0; p < PART / PAGE; p++) {
            const int next = base + PART + p * PAGE;
            part.next_keys[p] = next < end_position ? a.step->page(span, next) + at : part.keys[p];
        }
        for (part.first = 0; part.first < vectors; part.first += TOGETHER) {
            part.vectors = vectors - part.first < TOGETHER ? vectors - part.first : TOGETHER;
            for (int v = 0; v < part.vectors; v++) {
                const int seen = a.step->position[r + (part.first + v) / group] + 1 - base;
                part.seen[v] = seen > PART ? PART : seen > 0 ? seen : 0;
            }
            if (part.vectors >= OPEN_VECTORS) attend_part<Cache, true>(part, work);
            else attend_part<Cache, false>(part, work);
        }
    }

    for (int v = 0; v < vectors; v++) {
        float* y = a.out.row<float>(r + v / group) + (int64_t{head} * group + v % group) * dim;
        const f32x16 sum = splat(work.sum[v]);
        for (int i = 0; i < dim; i += 16) store(y + i, div(load(work.result + int64_t{v} * work.dim + i), sum), dim - i);
    }
}

void run_attend(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const int heads = a.in[1].height;
    with_cache(a.in[1].layout, [&](auto cache) {
        for (int64_t tile = first; tile < last; tile++) {
            const int64_t r = tile / heads;
            const Span& span = a.step->spans[a.step->span_of[r]];
            const int64_t end = span.first + span.count;
            if ((r - span.first) % ROWS == 0) attend_rows<decltype(cache)>(a, r, r + ROWS < end ? r + ROWS : end, static_cast<int>(tile % heads), scratch);
        }
    });
}

}  // namespace
