// attention.inl: attention over the cache (cache.inl).
//
//   attend  positions are cut into parts at multiples of PART; for each query vector a part has its own largest score m,
//           sum l and result o, from scratch:
//             s = fma over dimensions;  p = exp(s - m);  l = 16 lane sums, then the tree;  o = fma over positions
//           and parts are merged in ascending order. So chunks of a prompt, neighbours and threads do not move a bit.
//           A tile is up to TILE_ROWS rows of a sequence and one key-value head with all its query heads. Of few rows it is
//           one part of that, and whoever is done with the last of them merges all: a long sequence of one head must
//           not be one thread's work alone.
//           `store_attend` is the same for few rows, and stores their keys and values before it looks at them: a part
//           is the work of one thread, so nobody else has to be waited for.
//           A row sees the positions up to its own, with a window (attribute) the last so many of them or those of its
//           chunk, and where attention is not causal all of its span, or those at most half a window away. Parts of which it
//           sees nothing are left out. Scores may be capped, fall with the distance, or gain what a head has for each
//           distance; a sink takes a share of a head's sum at the end.
//           Where the cache has one row for keys and values, its many query heads are cut into tiles of at most LATENT_HEADS.
//           Many queries pay for unpacking the cache: 16 positions of keys, then 16 dimensions of values, become f32 once
//           for all of them and stay in the nearest cache meanwhile.

namespace {

constexpr int TILE_ROWS = MAX_SMALL_STEP_ROWS;     // rows of a tile at the most: they share what they read of the cache
constexpr int MAX_QUERIES = 48;             // query vectors of a tile that walk over a part together
constexpr int LATENT_HEADS = 16;             // query heads of a tile whose cache has one row for all
constexpr int UNPACK_QUERIES = 16;          // query vectors from which it pays to unpack the cache once for all of them

// What is known of some query vectors after some positions: the largest score, the sum of exp(score - largest), and the
// sum of the values that these exponentials weigh.
struct Found {
    float *most, *sum, *result;      // [vectors], [vectors], [vectors][dim]
    int   dim;                       // of a head's values, rounded up to whole vectors
    static int64_t floats(int64_t vectors, int dim) { return 2 * rounded_up(vectors, 16) + vectors * rounded_up(dim, 16); }
    Found(float* at, int vectors, int d) : most(at), sum(most + rounded_up(vectors, 16)), result(sum + rounded_up(vectors, 16)), dim(static_cast<int>(rounded_up(d, 16))) {}
    LANE float* of(int vector) const { return result + int64_t{vector} * dim; }
};

// What a thread keeps while it works on a tile: scaled queries, the scores of a part, what is unpacked, what was found.
struct Work {
    float *query, *score, *unpacked, *scales;
    Found all, part;
    int   dim;                       // of a query, rounded up to whole vectors
    static int64_t floats(int vectors, int d, int value_dim) {
        const int64_t padded = rounded_up(d, 16), room = 16 * (padded > PART ? padded : PART);
        return padded * vectors + int64_t{MAX_QUERIES} * PART + room + scale_room(d, value_dim) + 2 * Found::floats(vectors, value_dim);
    }
    static int64_t scale_room(int d, int value_dim) { return int64_t{PAGE} * ((higher_of(d, value_dim) + 31) / 32); }
    Work(uint8_t* scratch, int vectors, int d, int value_dim)
        : query(reinterpret_cast<float*>(scratch)), score(query + int64_t{vectors} * rounded_up(d, 16)), unpacked(score + int64_t{MAX_QUERIES} * PART),
          scales(unpacked + 16 * (rounded_up(d, 16) > PART ? rounded_up(d, 16) : PART)), all(scales + scale_room(d, value_dim), vectors, value_dim),
          part(all.most + Found::floats(vectors, value_dim), vectors, value_dim), dim(static_cast<int>(rounded_up(d, 16))) {}
};

// One part of the cache, of one head: where its pages lie, and which of its positions each query vector sees: those from
// `begin` to before `end`. Both never fall from one vector to the next. Pages that no vector sees have no place.
struct Part {
    const uint8_t *keys[PART / PAGE], *values[PART / PAGE];
    const uint8_t *next_keys[PART / PAGE];          // of what comes next: a part, or the first one of the next head
    int dim, value_dim, vectors, first;           // vectors [first, first + vectors) of the tile
    int begin[MAX_QUERIES], end[MAX_QUERIES];
    float cap;                                    // of scores; 0: none
    int   distances;                              // numbers of a head in `slope`: 0: none; 1: scores fall by so much for each
    const float* slope[MAX_QUERIES];              // position; else they gain these at distances -distances/2 .. distances/2
    int   own[MAX_QUERIES];                       // from this one, counted from the part's start
    int first_page() const { return begin[0] / PAGE; }
    int positions() const { return end[vectors - 1]; }
};

// How much further a pass goes for few vectors, so that there are sums enough to work on while an fma is under way.
template <int C> constexpr int wider = FLOAT_ACCUMULATORS / C < 1 ? 1 : FLOAT_ACCUMULATORS / C > 4 ? 4 : FLOAT_ACCUMULATORS / C;

// The body gets the first of each QUERIES_PER_PASS vectors, and how many there are as a constant.
template <class Body> LANE void by_queries(int vectors, const Body& body) {
    int v = 0;
    for (; v + QUERIES_PER_PASS <= vectors; v += QUERIES_PER_PASS) body(v, Index<QUERIES_PER_PASS>{});
    unroll<QUERIES_PER_PASS - 1>([&](auto rest) INLINE {
        if (vectors - v == rest.value + 1) body(v, Index<rest.value + 1>{});
    });
}

// Brings bytes near before their turn. Pages lie anywhere, so the hardware cannot know which comes next: while keys are
// read, the values of the same part are fetched, and while these are read, the keys of the next.
template <int BYTES> LANE void fetch(const uint8_t* p) {
    unroll<(BYTES + 63) / 64>([&](auto i) INLINE { __builtin_prefetch(p + 64 * i.value, 0, 2); });
}

// Scores of C vectors for G groups of 16 positions. `keys_of` gives 32 dimensions of a group; `meanwhile` is called for
// every one of them.
template <int C, int G, class KeysOf, class Meanwhile>
LANE void score_groups(const Work& work, int dim, const float* query, float* score, const KeysOf& keys_of, const Meanwhile& meanwhile) {
    f32x16 s[C][G];
    UNROLLED(c, C) UNROLLED(g, G) s[c][g] = splat(0.0f);
    for (int i = 0; i < dim;) {
        decltype(keys_of(0, 0)) keys[G];
        UNROLLED(g, G) keys[g] = keys_of(g, i);
        for (const int end = i + 32 < dim ? i + 32 : dim; i < end; i++)
            UNROLLED(g, G) {
                meanwhile(g, i);
                const f32x16 k = keys[g].at(i);
                const float* q = anew(query + i);
                UNROLLED(c, C) s[c][g] = fma(splat(q[c * work.dim]), k, s[c][g]);
            }
    }
    UNROLLED(c, C) UNROLLED(g, G) store(score + c * PART + 16 * g, s[c][g]);
}

template <class Cache> LANE void scores(const Part& part, const Work& work) {
    by_queries(part.vectors, [&](int v, auto queries) INLINE {
        constexpr int C = queries.value, G = wider<C>;
        const float* query = work.query + int64_t{part.first + v} * work.dim;
        float* score = work.score + int64_t{v} * PART;
        const int groups = (part.end[v + C - 1] + 15) / 16;
        const auto pass = [&](int first, auto count) INLINE {
            score_groups<C, count.value>(
                work, part.dim, query, score + 16 * first,
                [&](int g, int i) INLINE { return typename Cache::Keys(part.keys[(first + g) * 16 / PAGE], part.dim, (first + g) % (PAGE / 16), i); },
                [&](int g, int i) INLINE {
                    if (i % (4 / Cache::BYTES)) return;      // it is in the line of the one before
                    fetch<64>(part.values[(first + g) * 16 / PAGE] + (int64_t{(first + g) % (PAGE / 16)} * part.dim + i) * 16 * Cache::BYTES);
                });
        };
        int g = part.begin[v] / 16;
        for (; g + G <= groups; g += G) pass(g, Index<G>{});
        for (; g < groups; g++) pass(g, Index<1>{});
    });
}

// Many vectors: 16 positions of keys at a time, unpacked.
template <class Cache> LANE void unpacked_scores(const Part& part, const Work& work) {
    for (int g = part.begin[0] / 16; 16 * g < part.positions(); g++) {
        if constexpr (Cache::LATENT) Cache::turn(part.keys[g * 16 / PAGE], part.dim, g * 16 % PAGE, work.scales, work.unpacked);
        for (int i = 0; i < part.dim && !Cache::LATENT;) {
            const typename Cache::Keys keys(part.keys[g * 16 / PAGE], part.dim, g % (PAGE / 16), i);
            for (const int end = i + 32 < part.dim ? i + 32 : part.dim; i < end; i++) store(work.unpacked + 16 * i, keys.at(i));
        }
        by_queries(part.vectors, [&](int v, auto queries) INLINE {
            if (16 * g >= part.end[v + queries.value - 1] || 16 * g + 16 <= part.begin[v]) return;
            score_groups<queries.value, 1>(
                work, part.dim, work.query + int64_t{part.first + v} * work.dim, work.score + int64_t{v} * PART + 16 * g,
                [&](int, int) INLINE { return CacheF32::Keys(reinterpret_cast<const uint8_t*>(work.unpacked), part.dim, 0, 0); }, [](int, int) INLINE {});
        });
    }
}

// Scores of positions [begin, end) as attention has them: capped, and lowered by the distance.
LANE void bend(float* p, const Part& part, int v) {
    if (part.cap != 0.0f)
        for (int j = part.begin[v] / 16 * 16; j < part.end[v]; j += 16) store(p + j, soft_cap(load(p + j), splat(part.cap)));
    const int own = part.own[v], n = part.distances / 2;
    const float* slope = part.slope[v];
    if (part.distances == 1)
        for (int j = part.begin[v]; j < part.end[v]; j++) p[j] = __builtin_fmaf(*slope, static_cast<float>(j < own ? j - own : own - j), p[j]);
    else if (n)
        for (int j = part.begin[v]; j < part.end[v]; j++) p[j] += slope[higher_of(-n, lower_of(j - own, n)) + n];
}

// The scores of positions [begin, end) become what exp makes of them; the largest score and the sum of a vector.
LANE void exponentials(float* p, int begin, int end, float& high, float& sum) {
    const f32x16 nothing = splat(-__builtin_inff());
    const int low = begin / 16 * 16, whole = end / 16 * 16, rest = end - whole;
    const auto seen = [&](f32x16 x, int j, f32x16 hidden) INLINE {
        if (j == whole) x = keep(x, rest, hidden);
        return j == low && begin > low ? keep(hidden, begin - low, x) : x;
    };
    f32x16 m = nothing, l = splat(0.0f);
    for (int j = low; j < end; j += 16) m = max(m, seen(load(p + j), j, nothing));
    high = largest(m);
    for (int j = low; j < end; j += 16) {
        const f32x16 e = seen(exp(sub(load(p + j), splat(high))), j, splat(0.0f));
        store(p + j, e);
        l = add(l, e);
    }
    sum = sum16(l);
}

// o += the values of positions [from, to), weighed, for C vectors and W times 16 dimensions; vector c sees [begin[c], end[c]).
template <int C, int W, class Value>
LANE void weigh(const float* score, const int* begin, const int* end, int from, int to, f32x16 (&o)[C][W], const Value& value_of) {
    const auto alone = [&](int low, int high) INLINE {      // what not every one of these vectors sees
        UNROLLED(c, C)
            for (int j = higher_of(begin[c], low); j < lower_of(end[c], high); j++)
                UNROLLED(w, W) o[c][w] = fma(splat(score[c * PART + j]), value_of(j, w), o[c][w]);
    };
    int low = higher_of(begin[C - 1], from), high = lower_of(end[0], to);
    if (low >= high) low = high = to;
    alone(from, low);
    for (int j = low; j < high; j++)
        UNROLLED(w, W) {
            const f32x16 value = value_of(j, w);
            const float* p = anew(score + j);
            UNROLLED(c, C) o[c][w] = fma(splat(p[c * PART]), value, o[c][w]);
        }
    alone(high, to);
}

// Page by page, which the nearest cache holds while all dimensions are walked.
template <class Cache> LANE void weighed_values(const Part& part, const Work& work, const Found& found) {
    by_queries(part.vectors, [&](int v, auto queries) INLINE {
        constexpr int C = queries.value;
        const float* score = work.score + int64_t{v} * PART;
        const int *begin = part.begin + v, *end = part.end + v, start = begin[0] / PAGE * PAGE, most = end[C - 1];
        const auto columns = [&](const typename Cache::Values& values, int i, int from, auto width) INLINE {
            constexpr int W = width.value;
            f32x16 o[C][W];
            const auto sums = [&](int c, int w) INLINE { return found.of(part.first + v + c) + i + 16 * w; };
            UNROLLED(c, C) UNROLLED(w, W) o[c][w] = from > start ? load(sums(c, w)) : splat(0.0f);
            weigh<C, W>(score, begin, end, from, lower_of(from + PAGE, most), o, [&](int j, int w) INLINE {
                if (w == 0) fetch<16 * W * Cache::BYTES>(part.next_keys[from / PAGE] + (int64_t{j - from} * part.dim + i) * Cache::BYTES);
                return values.at(j - from, i + 16 * w, W > 1 ? 16 : part.value_dim - i);
            });
            UNROLLED(c, C) UNROLLED(w, W) store(sums(c, w), o[c][w]);
        };
        for (int from = start; from < most; from += PAGE) {
            const typename Cache::Values values(part.values[from / PAGE], part.value_dim, work.scales);
            int i = 0;
            for (; i + 16 * wider<C> <= part.value_dim; i += 16 * wider<C>) columns(values, i, from, Index<wider<C>>{});
            for (; i < part.value_dim; i += 16) columns(values, i, from, Index<1>{});
        }
    });
}

// Many vectors: 16 dimensions of values at a time, unpacked.
template <class Cache> LANE void unpacked_weighed_values(const Part& part, const Work& work, const Found& found) {
    const int row = Cache::LATENT ? part.dim : part.value_dim;
    for (int i = 0; i < part.value_dim; i += 16) {
        for (int from = part.first_page() * PAGE; from < part.positions(); from += PAGE) {
            const typename Cache::Values values(part.values[from / PAGE], row, work.scales);
            for (int j = from; j < from + PAGE && j < part.positions(); j++) store(work.unpacked + 16 * j, values.at(j - from, i, part.value_dim - i));
        }
        by_queries(part.vectors, [&](int v, auto queries) INLINE {
            constexpr int C = queries.value;
            f32x16 o[C][1];
            UNROLLED(c, C) o[c][0] = splat(0.0f);
            weigh<C, 1>(work.score + int64_t{v} * PART, part.begin + v, part.end + v, 0, PART, o, [&](int j, int) INLINE { return load(work.unpacked + 16 * j); });
            UNROLLED(c, C) store(found.of(part.first + v + c) + i, o[c][0]);
        });
    }
}

template <class Cache, bool UNPACK> __attribute__((noinline)) void attend_part(const Part& part, const Work& work, const Found& found) {
    for (int p = part.first_page(); p * PAGE < part.positions(); p++) {
        Cache::fetch_scales(part.values[p], Cache::LATENT ? part.dim : part.value_dim);
        Cache::fetch_scales(part.next_keys[p], part.dim);
    }
    if constexpr (UNPACK) unpacked_scores<Cache>(part, work);
    else scores<Cache>(part, work);
    for (int v = 0; v < part.vectors; v++) {
        bend(work.score + int64_t{v} * PART, part, v);
        float &high = found.most[part.first + v], &sum = found.sum[part.first + v];
        if (part.begin[v] < part.end[v]) exponentials(work.score + int64_t{v} * PART, part.begin[v], part.end[v], high, sum);
        else high = -__builtin_inff(), sum = 0.0f;
    }
    if constexpr (UNPACK) unpacked_weighed_values<Cache>(part, work, found);
    else weighed_values<Cache>(part, work, found);
}

// Vectors that saw nothing of `more` (their sum is 0) stay as they are, and those that saw nothing before take it as it is.
LANE void merge(const Found& all, const Found& more, int vectors) {
    for (int first = 0; first < vectors; first += 16) {
        const f32x16 m = load(all.most + first), n = load(more.most + first), both = max(m, n);
        const f32x16 a = exp(sub(m, both)), b = exp(sub(n, both));
        float before[16], after[16], most[16], sum[16];
        store(before, a);
        store(after, b);
        store(most, both);
        store(sum, fma(load(more.sum + first), b, mul(load(all.sum + first), a)));
        for (int v = first; v < first + 16 && v < vectors; v++) {
            if (more.sum[v] == 0.0f) continue;
            const bool fresh = all.sum[v] == 0.0f;
            all.most[v] = fresh ? more.most[v] : most[v - first];
            all.sum[v] = fresh ? more.sum[v] : sum[v - first];
            for (int i = 0; i < all.dim; i += 16) {
                const f32x16 found = load(more.of(v) + i);
                store(all.of(v) + i, fresh ? found : fma(found, splat(after[v - first]), mul(load(all.of(v) + i), splat(before[v - first]))));
            }
        }
    }
}

// How query heads are cut into tiles: all of a key-value head, or some of them where all share one row.
struct Heads {
    int count, each, split;          // of tiles, of query heads in one, of tiles for a key-value head
    explicit Heads(const Args& a) {
        const int group = static_cast<int>(a.attr[0]) / a.in[1].height;
        split = 1;
        while (is_latent(a.in[1].layout) && (group / split > LATENT_HEADS || group % split)) split++;
        count = a.in[1].height * split;
        each = group / split;
    }
};

// How many numbers a head has for distances.
LANE int distances_of(const Args& a, const Operand& slopes) { return slopes.base ? slopes.width / static_cast<int>(a.attr[0]) : 0; }

// Rows [row, end) of one sequence and query heads of one key-value head.
struct Tile {
    const Args& a;
    int64_t row, end;
    int     head, cached, group, vectors;         // a tile of heads, its key-value head, its query heads
    int     window, last, begin, positions;       // the span ends before `last`; its rows here see `begin` to before `positions`
    bool    causal, chunked;
    Tile(const Args& args, int64_t r, int h, const Heads& heads) : a(args), row(r), head(h), cached(h / heads.split), group(heads.each) {
        const Span& span = a.step->spans[a.step->span_of[r]];
        const int64_t after = span.first + span.count;
        end = r + TILE_ROWS < after ? r + TILE_ROWS : after;
        vectors = static_cast<int>(end - r) * group;
        window = static_cast<int>(a.attr[2]);
        chunked = a.attr[3] != 0.0;
        causal = a.attr[4] != 0.0;
        begin = begin_of(r);
        last = span.position + span.count;
        positions = end_of(end - 1);
    }
    int begin_of(int64_t r) const {
        const int own = a.step->position[r];
        if (!window) return 0;
        return !causal ? higher_of(own - window / 2, 0) : chunked ? own / window * window : higher_of(own + 1 - window, 0);
    }
    int end_of(int64_t r) const {
        const int own = a.step->position[r];
        return causal ? own + 1 : window && window / 2 < last - own ? own + window / 2 + 1 : last;
    }
    int first_part() const { return begin / PART; }
    int parts() const { return (positions + PART - 1) / PART; }
    int dim() const { return a.in[1].width; }
    int value_dim() const { return a.out.width / static_cast<int>(a.attr[0]); }
    int query_head(int v) const { return head * group + v % group; }
    // what a head has beside its scores: sinks and slopes are the last two operands
    const Operand& sinks() const { return a.in[stores() ? 5 : 4]; }
    const Operand& slopes() const { return a.in[stores() ? 6 : 5]; }
    bool stores() const { return a.in[3].base; }

    void scaled_queries(const Work& work) const {
        const f32x16 scale = splat(static_cast<float>(a.attr[1]));
        for (int v = 0; v < vectors; v++) {
            const float* q = a.in[0].row<const float>(row + v / group) + int64_t{query_head(v)} * dim();
            for (int i = 0; i < dim(); i += 16) store(work.query + int64_t{v} * work.dim + i, mul(load(q + i, dim() - i), scale));
        }
    }

    // the keys and values of this part that are not in the cache yet
    template <class Cache> void store_new(int number) const {
        const Stored stored{a.step, a.in[3], a.in[4], a.in[1]};
        for (int64_t r = row; r < end; r++)
            if (a.step->position[r] / PART == number) stored.put<Cache>(r, cached);
    }

    template <class Cache> void look(int number, const Work& work, const Found& found) const {
        if (stores()) store_new<Cache>(number);
        const int base = number * PART, span = a.step->span_of[row];
        const int64_t each = Cache::keys(dim()) + Cache::values(value_dim()), at = a.in[1].stride + cached * each;
        Part part{};
        part.dim = dim();
        part.value_dim = value_dim();
        part.cap = static_cast<float>(a.attr[5]);
        part.distances = distances_of(a, slopes());
        const auto kept = [&](int position) { return position < positions && position + PAGE > begin; };
        for (int p = 0; p < PART / PAGE; p++) {
            if (!kept(base + p * PAGE)) continue;
            part.keys[p] = a.step->page(a.in[1], span, base + p * PAGE) + at;
            part.values[p] = part.keys[p] + (Cache::LATENT ? 0 : Cache::keys(dim()));
        }
        for (int p = 0; p < PART / PAGE; p++) {
            const int next = base + PART + p * PAGE, first = first_part() * PART + p * PAGE;
            if (next < positions) part.next_keys[p] = a.step->page(a.in[1], span, next) + at;
            else if (cached + 1 < a.in[1].height && kept(first)) part.next_keys[p] = a.step->page(a.in[1], span, first) + at + each;
            else part.next_keys[p] = part.keys[p];
        }
        for (part.first = 0; part.first < vectors; part.first += MAX_QUERIES) {
            part.vectors = vectors - part.first < MAX_QUERIES ? vectors - part.first : MAX_QUERIES;
            for (int v = 0; v < part.vectors; v++) {
                const int64_t r = row + (part.first + v) / group;
                const auto within = [&](int position) { return lower_of(higher_of(position - base, 0), PART); };
                part.begin[v] = within(begin_of(r));
                part.end[v] = within(end_of(r));
                part.own[v] = a.step->position[r] - base;
                if (part.distances) part.slope[v] = slopes().row<const float>(0) + int64_t{query_head(part.first + v)} * part.distances;
            }
            if (Cache::LATENT || part.vectors >= UNPACK_QUERIES) attend_part<Cache, true>(part, work, found);
            else if constexpr (!Cache::LATENT) attend_part<Cache, false>(part, work, found);
        }
    }

    void write(const Found& found) const {
        for (int v = 0; v < vectors; v++) {
            float* y = a.out.row<float>(row + v / group) + int64_t{query_head(v)} * value_dim();
            f32x16 sum = splat(found.sum[v]), share = splat(1.0f);
            if (sinks().base) {
                const f32x16 sink = splat(sinks().row<const float>(0)[query_head(v)]), most = splat(found.most[v]), both = max(most, sink);
                share = exp(sub(most, both));
                sum = add(exp(sub(sink, both)), mul(sum, share));
            }
            for (int i = 0; i < value_dim(); i += 16) {
                const f32x16 result = load(found.of(v) + i);
                store(y + i, div(sinks().base ? mul(result, share) : result, sum), value_dim() - i);
            }
        }
    }
};

// What threads share that work on parts of one tile: how many parts of it are done, and what was found in each.
struct Shared {
    int     heads, parts, dim;
    int64_t unit;            // bytes of what is found for one row, one head, one part
    int32_t* done;           // [rows][heads], all 0 between the instructions
    uint8_t* found;

    static int64_t counters(int heads) { return rounded_up(int64_t{TILE_ROWS} * heads * 4, 64); }
    static int value_dim(const Args& a) { return a.out.width / static_cast<int>(a.attr[0]); }
    static int64_t unit_of(const Args& a) { return Found::floats(Heads(a).each, value_dim(a)) * 4; }
    explicit Shared(const Args& a, int all_parts)
        : heads(Heads(a).count), parts(all_parts), dim(value_dim(a)), unit(unit_of(a)), done(reinterpret_cast<int32_t*>(a.shared)), found(a.shared + counters(heads)) {}
    Found of(const Tile& tile, int part) const {
        const int64_t rows = tile.end - tile.row;
        return Found(reinterpret_cast<float*>(found + (tile.row * heads * parts + (int64_t{tile.head} * parts + part) * rows) * unit), tile.vectors, dim);
    }
    // whether this was the last part of the tile
    bool finished(const Tile& tile) const {
        int32_t& count = done[tile.row * heads + tile.head];
        if (__atomic_add_fetch(&count, 1, __ATOMIC_ACQ_REL) < tile.parts() - tile.first_part()) return false;
        __atomic_store_n(&count, 0, __ATOMIC_RELAXED);
        return true;
    }
};

constexpr int64_t MAX_SHARED_BYTES = int64_t{16} << 20;      // bytes at the most; beyond them a tile is not shared

const char* check_attend(const Args& a) {
    const Operand &q = a.in[0], &s = a.in[1];
    const int heads = static_cast<int>(a.attr[0]);
    if (s.height < 1 || heads < 1 || heads % s.height) return "query heads are no multiple of the cache's heads";
    if (!is_rows(q) || !is_rows(a.out) || q.width != heads * s.width || a.out.width % heads) return "queries or results have another width";
    if (!is_state(s, a.out.width / heads)) return "needs a cache";
    if (!(a.attr[2] >= 0.0 && a.attr[2] <= INT32_MAX)) return "a window has no such length";
    if (a.attr[3] != 0.0 && (a.attr[2] == 0.0 || a.attr[4] == 0.0)) return "chunks have no length";
    const Operand &sinks = a.in[a.in[3].base ? 5 : 4], &slopes = a.in[a.in[3].base ? 6 : 5];
    if (sinks.base && !is_vector(sinks, heads)) return "sinks are one for each head";
    if (slopes.base && (!is_vector(slopes, slopes.width) || slopes.width % heads || slopes.width / heads % 2 == 0))
        return "slopes are one for each head, or one for each distance both ways";
    return nullptr;
}

const char* check_store_attend(const Args& a) {
    const Stored stored{a.step, a.in[3], a.in[4], a.in[1]};
    if (const char* wrong = stored.check()) return wrong;
    if (const char* wrong = check_attend(a)) return wrong;
    if (is_latent(a.in[1].layout)) return "tiles of one key-value head must not store it";
    if (a.attr[4] == 0.0) return "a row that sees later ones waits for all to be stored";
    return stored.value_dim() * static_cast<int>(a.attr[0]) == a.out.width ? nullptr : "values have another width";
}

size_t scratch_attend(const Args& a) {
    const int vectors = TILE_ROWS * Heads(a).each;
    return static_cast<size_t>(Work::floats(vectors, a.in[1].width, Shared::value_dim(a))) * sizeof(float);
}

size_t shared_attend(const Args& a) { return static_cast<size_t>(Shared::counters(Heads(a).count) + MAX_SHARED_BYTES); }

// In how many parts tiles are shared: 1 where there are rows enough for all threads, or no room.
LANE int shared_parts(const Args& a) {
    int last = 0;
    if (a.rows > TILE_ROWS) return 1;
    for (int32_t r = 0; r < a.rows; r++) last = a.step->position[r] > last ? a.step->position[r] : last;
    const int parts = last / PART + 1;
    return int64_t{a.rows} * Heads(a).count * parts * Shared::unit_of(a) <= MAX_SHARED_BYTES ? parts : 1;
}

// A tile for each row and head, and part where it is shared; the first of every TILE_ROWS rows of a sequence does the work of all.
Tiles tiles_attend(const Args& a) noexcept { return {int64_t{Heads(a).count} * a.rows * shared_parts(a), 1}; }

template <class Cache> LANE void attend_whole(const Tile& tile, const Work& work) {
    tile.scaled_queries(work);
    tile.look<Cache>(tile.first_part(), work, work.all);
    for (int part = tile.first_part() + 1; part < tile.parts(); part++) {
        tile.look<Cache>(part, work, work.part);
        merge(work.all, work.part, tile.vectors);
    }
    tile.write(work.all);
}

template <class Cache> LANE void attend_shared(const Tile& tile, int part, const Work& work, const Shared& shared) {
    if (part < tile.first_part() || part >= tile.parts()) return;
    tile.scaled_queries(work);
    tile.look<Cache>(part, work, shared.of(tile, part));
    if (!shared.finished(tile)) return;
    const Found all = shared.of(tile, tile.first_part());
    for (int p = tile.first_part() + 1; p < tile.parts(); p++) merge(all, shared.of(tile, p), tile.vectors);
    tile.write(all);
}

void run_attend(const Args& a, int64_t first, int64_t last, uint8_t* scratch) noexcept {
    const Heads heads(a);
    const int parts = shared_parts(a);
    with_cache(a.in[1].layout, [&](auto cache) {
        using Cache = decltype(cache);
        for (int64_t number = first; number < last; number++) {
            const int64_t r = number / parts / heads.count;
            if ((r - a.step->spans[a.step->span_of[r]].first) % TILE_ROWS) continue;
            const Tile tile(a, r, static_cast<int>(number / parts % heads.count), heads);
            const Work work(scratch, tile.vectors, tile.dim(), tile.value_dim());
            if (parts == 1) attend_whole<Cache>(tile, work);
            else attend_shared<Cache>(tile, static_cast<int>(number % parts), work, Shared(a, parts));
        }
    });
}

}  // namespace
