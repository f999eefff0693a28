/* Attention of queries over the keys of their rows' pages, as kernels/paged_decode.py and paged_prefill.py say.

   A query's result is the same bits whatever is computed beside it, whether its token is decoded or part of a prompt,
   and wherever the prompt was cut: each query adds up in the same order, in chunks of tokens that begin where their
   size divides the position. Of each chunk come all scores first, then their exponentials against the best score so
   far, then the weighted sum of its values, which joins what the chunks before gave. What a query does not see weighs
   nothing.

   Sixteen tokens at a time are unpacked into float32 that stays in the first cache, where all heads and neighbouring
   tokens that share them take them from. What they are multiplied with depends on no format. */

#include "vectors.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define TILE 16                /* tokens: the fewest that a page has, which all others are multiples of */
#define CHUNK 256              /* tokens whose scores are kept at once */
#define MOST_QUERIES 32        /* that meet an unpacked tile */

/* As `_ATTENTION` in calls.py packs it. */
typedef struct {
    const void *q;                          /* [queries, heads, size] */
    void *out;                              /* of the same shape and elements */
    float *lse;                             /* [queries, heads] */
    const uint8_t *arena;
    const int64_t *pages;                   /* [rows, most_pages] */
    const int32_t *lengths;                 /* [rows] */
    const int32_t *queries;                 /* [rows + 1]: where each row's begin, which are its last tokens */
    const float *key_scales, *value_scales; /* [kv_heads] */
    const float *signs;                     /* [size], of the rotation */
    int64_t layer_at, key_scales_at, value_codes_at, value_scales_at;
    int64_t most_pages;
    double softmax_scale;
    int32_t rows, heads, kv_heads, size, block_tokens, window;
    int32_t elements, key, value;
    int32_t key_bytes, key_scale_bytes, value_bytes, value_scale_bytes;
    int32_t is_key_rotated, is_value_rotated;
} Call;

/* Queries of one row that share a KV head, and what they found: sums of values and of weights against the best score.
   Vectors lie `size` apart. */
typedef struct {
    int row, count;
    int begin[MOST_QUERIES], end[MOST_QUERIES]; /* tokens that each sees */
    int first_begin, last_begin, first_end, last_end;
    float q[MOST_QUERIES * MOST_HEAD_SIZE];
    float sums[MOST_QUERIES * MOST_HEAD_SIZE];
    float best[MOST_QUERIES], total[MOST_QUERIES];
} Queries;

/* Where one side's vectors of one head lie in a page. */
typedef struct {
    int kind, bytes, scale_bytes;
    int64_t codes_at, scales_at;
    float static_scale; /* of all vectors; their own comes in its place */
} Side;

#define E4M3_SCALE 256.0f /* what E4M3 is too small by when it is unpacked */

static float static_scale(int kind, float calibrated) {
    return kind == E4M3 ? calibrated * E4M3_SCALE : kind == E5M2 || kind == NVFP4 ? calibrated : 1;
}

static Side key_side(const Call *call, int head) {
    return (Side){
        .kind = call->key,
        .bytes = call->key_bytes,
        .scale_bytes = call->key_scale_bytes,
        .codes_at = (int64_t)head * call->block_tokens * call->key_bytes,
        .scales_at = call->key_scales_at + (int64_t)head * call->block_tokens * call->key_scale_bytes,
        .static_scale = static_scale(call->key, call->key_scales[head]),
    };
}

static Side value_side(const Call *call, int head) {
    return (Side){
        .kind = call->value,
        .bytes = call->value_bytes,
        .scale_bytes = call->value_scale_bytes,
        .codes_at = call->value_codes_at + (int64_t)head * call->block_tokens * call->value_bytes,
        .scales_at = call->value_scales_at + (int64_t)head * call->block_tokens * call->value_scale_bytes,
        .static_scale = static_scale(call->value, call->value_scales[head]),
    };
}

/* Unpacking */

static const uint8_t *page_of(const Call *call, int row, int token) {
    return call->arena + call->pages[row * call->most_pages + token / call->block_tokens] + call->layer_at;
}

INLINE void unpack_bf16(const uint8_t *codes, int count, float *restrict to) {
    for (int i = 0; i < count; i++) to[i] = float_of_bf16(half_word(codes, i));
}

/* A code's bits moved to where a longer float has them; its exponent is then too small, which the scale makes good. */
INLINE void unpack_fp8(const uint8_t *codes, int count, int mantissa, float *restrict to) {
#if defined(__AVX512F__)
    /* Through float16, which an instruction widens. A signed byte brings its sign along, E4M3's once too often. */
    for (int i = 0; i < count; i += LANES) {
        __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + i)));
        wide = mantissa == 3 ? _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xBFFF))
                             : _mm256_slli_epi16(wide, 8);
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(wide));
    }
#else
    for (int i = 0; i < count; i++) {
        uint32_t code = codes[i];
        to[i] = float_of((code & 0x80) << 24 | (code & 0x7F) << (23 - mantissa)) * 0x1p112f;
    }
#endif
}

INLINE void unpack_int8(const int8_t *restrict codes, int count, float *restrict to) {
    for (int i = 0; i < count; i++) to[i] = codes[i];
}

/* Elements `size * bits / 8` apart share a byte: the vector's first part has the lowest bits. */
INLINE void unpack_levels(const uint8_t *restrict codes, int size, const int bits, int zero, float *restrict to) {
    const int width = size * bits / 8;
    int8_t levels[MOST_HEAD_SIZE];
    for (int part = 0; part < 8 / bits; part++)
        for (int i = 0; i < width; i++)
            levels[part * width + i] = (codes[i] >> part * bits & ((1 << bits) - 1)) - zero;
    unpack_int8(levels, size, to);
}

/* E2M1 is 0, ½, 1, 1½, 2, 3, 4, 6: here doubled, so that it is whole. */
INLINE int8_t e2m1_doubled(int8_t code) {
    int8_t size = code & 7;
    size += (size > 4) + (size > 5) + 3 * (size > 6);
    return code & 8 ? -size : size;
}

INLINE void unpack_nvfp4(const uint8_t *restrict codes, const uint8_t *scales, int size, float *restrict to) {
    const int width = size / 2;
    int8_t doubled[MOST_HEAD_SIZE];
    for (int i = 0; i < width; i++) doubled[i] = e2m1_doubled(codes[i] & 15);
    for (int i = 0; i < width; i++) doubled[width + i] = e2m1_doubled(codes[i] >> 4);
    unpack_int8(doubled, size, to);
    for (int group = 0; group < size / 16; group++)
        store(to + group * 16, load(to + group * 16) * (e4m3_of(scales[group]) * 0.5f));
}

/* The next tile's codes, while this one is computed: pages lie anywhere, so no processor would guess where. */
INLINE void fetch(const Call *call, const Side *side, int row, int token, int stop) {
    if (token >= stop) return;
    const uint8_t *codes = page_of(call, row, token) + side->codes_at + (token % call->block_tokens) * side->bytes;
    for (int at = 0; at < TILE * side->bytes; at += 64) __builtin_prefetch(codes + at);
}

/* The tile at `token`: units into `to`, unless they are where the arena has them, and scales. What lies outside `start`
   to `stop` is not read, for it may be anything, and becomes 0. */
APART const float *unpack(const Call *call, const Side *side, int row, int token, int start, int stop,
                           float *restrict to, float *restrict scales) {
    const int size = call->size, slot = token % call->block_tokens;
    const int low = start > token ? start - token : 0, high = stop - token < TILE ? stop - token : TILE;
    const uint8_t *page = page_of(call, row, token);
    const uint8_t *codes = page + side->codes_at + (slot + low) * side->bytes;
    const uint8_t *own = page + side->scales_at + (slot + low) * side->scale_bytes;
    const int count = (high - low) * size;
    float *into = to + low * size;
    for (int t = 0; t < TILE; t++) scales[t] = t >= low && t < high ? side->static_scale : 0;
    if (high - low < TILE) memset(to, 0, TILE * size * sizeof *to);
    switch (side->kind) {
    case FP32:
        if (high - low == TILE) return (const float *)codes;
        memcpy(into, codes, count * sizeof *to);
        break;
    case BF16: unpack_bf16(codes, count, into); break;
    case E4M3: unpack_fp8(codes, count, 3, into); break;
    case E5M2: unpack_fp8(codes, count, 2, into); break;
    case INT8:
        memcpy(scales + low, own, (high - low) * sizeof *scales);
        unpack_int8((const int8_t *)codes, count, into);
        break;
    case NVFP4:
        for (int t = 0; t < high - low; t++)
            unpack_nvfp4(codes + t * side->bytes, own + t * side->scale_bytes, size, into + t * size);
        break;
    default:
        for (int t = 0; t < high - low; t++) {
            uint32_t header;
            memcpy(&header, own + t * sizeof header, sizeof header);
            scales[low + t] = float_of(header & ~15u);
            if (side->kind == INT4)
                unpack_levels(codes + t * side->bytes, size, 4, header & 15, into + t * size);
            else
                unpack_levels(codes + t * side->bytes, size, 2, header & 15, into + t * size);
        }
    }
    return to;
}

/* Scores */

/* Pairs of lanes 1, 2, 4 or 8 apart become their sums: of a in the first of the two, of b in the second. */
#define FOLD_1(a, b)                                                          \
    (SHUFFLE(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) + \
     SHUFFLE(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#define FOLD_2(a, b)                                                          \
    (SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) + \
     SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define FOLD_4(a, b)                                                          \
    (SHUFFLE(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) + \
     SHUFFLE(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
#define FOLD_8(a, b)                                                     \
    (SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) + \
     SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))

/* Sixteen vectors become one: lane i is the sum of x[i]'s lanes. */
INLINE Floats lane_sums(const Floats x[LANES]) {
    Floats by2[8], by4[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) by2[i] = FOLD_1(x[2 * i], x[2 * i + 1]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) by4[i] = FOLD_2(by2[2 * i], by2[2 * i + 1]);
    Floats first = FOLD_4(by4[0], by4[1]), second = FOLD_4(by4[2], by4[3]);
    return FOLD_8(first, second);
}

/* `queries` with a tile's keys, some tokens at a time: sixteen sums, which fit a processor's registers. */
INLINE void scores_of(const float *q, const float *keys, int size, const int queries, float *scores) {
    const int tokens = LANES / queries;
    for (int token = 0; token < TILE; token += tokens) {
        Floats sums[LANES] = {};
        for (int d = 0; d < size; d += LANES) {
            Floats key[LANES];
#pragma GCC unroll 16
            for (int t = 0; t < tokens; t++) key[t] = load_to_keep(keys + (token + t) * size + d);
#pragma GCC unroll 4
            for (int i = 0; i < queries; i++) {
                Floats query = load_to_keep(q + i * size + d);
#pragma GCC unroll 16
                for (int t = 0; t < tokens; t++) sums[i * tokens + t] += query * key[t];
            }
        }
        Floats found = lane_sums(sums);
        for (int i = 0; i < queries; i++)
            memcpy(scores + i * CHUNK + token, (float *)&found + i * tokens, tokens * sizeof *scores);
    }
}

APART void tile_scores(const Queries *queries, const float *keys, int size, float *scores) {
    const float *q = queries->q;
    int i = 0;
    for (; i + 4 <= queries->count; i += 4) scores_of(q + i * size, keys, size, 4, scores + i * CHUNK);
    for (; i + 2 <= queries->count; i += 2) scores_of(q + i * size, keys, size, 2, scores + i * CHUNK);
    for (; i < queries->count; i++) scores_of(q + i * size, keys, size, 1, scores + i * CHUNK);
}

/* Scores of a tile that begins at `token` are scaled, and -inf where its query does not see the token. */
APART void scale_and_hide(const Queries *queries, int token, const float *scales, float *scores) {
    const Ints lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int is_seen_by_all = token >= queries->last_begin && token + TILE <= queries->first_end;
    for (int i = 0; i < queries->count; i++, scores += CHUNK) {
        Floats scaled = load(scores) * load(scales);
        if (!is_seen_by_all) {
            Ints hidden = (lane + token < queries->begin[i]) | (lane + token >= queries->end[i]);
            scaled = either(hidden, all(-INFINITY), scaled);
        }
        store(scores, scaled);
    }
}

/* Weights */

/* e to the x, for x from -inf to 0: 2 to the n times a polynomial in the rest, off by less than 2 units in the last
   place. What would be subnormal is 0. NaN stays one. */
INLINE Floats exponential(Floats x) {
    const float rounds = 12582912.0f; /* 1.5 · 2²³: no bits are left for a fraction */
    Floats sum = x * 1.44269504f + rounds, n = sum - rounds;
    Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Floats y = all(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    Floats power = (Floats)(((Ints)sum + 127) << 23);
    return either(x < -87.0f, all(0), y * power);
}

/* A query's scores become weights against the best score so far. Returns what its sums so far must shrink by. */
APART float weigh(float *scores, int count, float *best, float *total) {
    Floats sum = {}, high = all(*best);
    for (int i = 0; i < count; i += LANES) high = larger(high, load(scores + i));
    const float largest = largest_lane(high), against = largest == -INFINITY ? 0 : largest;
    const float shrink = expf(*best - against);
    for (int i = 0; i < count; i += LANES) {
        Floats weights = exponential(load(scores + i) - against);
        sum += weights;
        store(scores + i, weights);
    }
    float added = 0;
    for (int i = 0; i < LANES; i++) added += sum[i];
    *best = largest;
    *total = *total * shrink + added;
    return shrink;
}

/* Values */

/* A tile's values, weighted, added to the sums of so many queries in so many vectors: sixteen sums at most. */
INLINE void add_block(const float *weights, const float *values, int size, const int queries, const int vectors,
                      float *sums) {
    Floats sum[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[i][v] = load(sums + i * size + v * LANES);
    for (int token = 0; token < TILE; token++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            Floats value = load_to_keep(values + token * size + v * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < queries; i++) sum[i][v] += value * weights[i * CHUNK + token];
        }
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) store(sums + i * size + v * LANES, sum[i][v]);
}

INLINE void add_values(const float *weights, const float *values, int size, const int queries, float *sums) {
    int d = 0;
    for (; d + 4 * LANES <= size; d += 4 * LANES) add_block(weights, values + d, size, queries, 4, sums + d);
    for (; d < size; d += LANES) add_block(weights, values + d, size, queries, 1, sums + d);
}

APART void tile_values(int count, float *weights, const float *scales, const float *values, int size, float *sums) {
    for (int i = 0; i < count; i++) store(weights + i * CHUNK, load(weights + i * CHUNK) * load(scales));
    int i = 0;
    for (; i + 4 <= count; i += 4) add_values(weights + i * CHUNK, values, size, 4, sums + i * size);
    for (; i + 2 <= count; i += 2) add_values(weights + i * CHUNK, values, size, 2, sums + i * size);
    for (; i < count; i++) add_values(weights + i * CHUNK, values, size, 1, sums + i * size);
}

/* Chunks */

/* Tokens from `start` up to `stop`, which lie in one chunk; tiles begin where their size divides the position. */
static void attend_chunk(const Call *call, const Side *keys, const Side *values, int start, int stop,
                         Queries *queries) {
    const int size = call->size, row = queries->row, chunk = start / CHUNK * CHUNK;
    float tile[TILE * MOST_HEAD_SIZE], scales[TILE], sums[MOST_QUERIES * MOST_HEAD_SIZE];
    float weights[MOST_QUERIES * CHUNK];
    const int first = start / TILE * TILE, count = (stop - first + TILE - 1) / TILE * TILE;
    for (int token = first; token < stop; token += TILE) {
        fetch(call, keys, row, token + TILE, stop);
        const float *units = unpack(call, keys, row, token, start, stop, tile, scales);
        tile_scores(queries, units, size, weights + token - first);
        scale_and_hide(queries, token, scales, weights + token - first);
    }
    fetch(call, values, row, first, stop);
    float shrink[MOST_QUERIES];
    for (int i = 0; i < queries->count; i++)
        shrink[i] = weigh(weights + i * CHUNK, count, &queries->best[i], &queries->total[i]);
    memset(sums, 0, queries->count * size * sizeof *sums);
    for (int token = first; token < stop; token += TILE) {
        fetch(call, values, row, token + TILE, stop);
        const float *units = unpack(call, values, row, token, start, stop, tile, scales);
        tile_values(queries->count, weights + token - first, scales, units, size, sums);
    }
    fetch(call, keys, row, chunk + CHUNK, queries->last_end);
    for (int i = 0; i < queries->count; i++)
        for (int d = i * size; d < (i + 1) * size; d++) queries->sums[d] = queries->sums[d] * shrink[i] + sums[d];
}

/* Queries */

static void load_query(const Call *call, int64_t vector, float *q) {
    const int bytes = call->elements == FLOAT32 ? 4 : 2;
    widen((const uint8_t *)call->q + vector * call->size * bytes, call->elements, call->size, q);
    if (call->is_key_rotated) rotate(q, call->size, call->signs, 0);
    const float scale = call->softmax_scale;
    for (int d = 0; d < call->size; d++) q[d] *= scale;
}

static void store_mean(const Call *call, int64_t vector, float *sums, float total) {
    for (int d = 0; d < call->size; d++) sums[d] /= total;
    if (call->is_value_rotated) rotate(sums, call->size, call->signs, 1);
    if (call->elements == FLOAT32) {
        memcpy((float *)call->out + vector * call->size, sums, call->size * sizeof *sums);
    } else {
        uint16_t *out = (uint16_t *)call->out + vector * call->size;
        for (int d = 0; d < call->size; d++) out[d] = bf16_of(sums[d]);
    }
}

/* `heads` heads from `head` on of `tokens` tokens, the first of which is the query `query` at `position`. */
static void attend_queries(const Call *call, int row, int kv_head, int query, int position, int tokens, int head,
                           int heads) {
    const int window = call->window, size = call->size;
    Queries queries;
    queries.row = row, queries.count = tokens * heads;
    memset(queries.sums, 0, queries.count * size * sizeof *queries.sums);
    memset(queries.total, 0, sizeof queries.total);
    for (int i = 0; i < queries.count; i++) {
        const int at = position + i / heads;
        queries.begin[i] = window && at >= window ? at + 1 - window : 0;
        queries.end[i] = at + 1;
        queries.best[i] = -INFINITY;
        load_query(call, (int64_t)(query + i / heads) * call->heads + head + i % heads, queries.q + i * size);
    }
    queries.first_begin = queries.begin[0], queries.last_begin = queries.begin[queries.count - 1];
    queries.first_end = queries.end[0], queries.last_end = queries.end[queries.count - 1];
    const Side keys = key_side(call, kv_head), values = value_side(call, kv_head);
    for (int start = queries.first_begin; start < queries.last_end; start = start / CHUNK * CHUNK + CHUNK) {
        const int stop = start / CHUNK * CHUNK + CHUNK;
        attend_chunk(call, &keys, &values, start, stop < queries.last_end ? stop : queries.last_end, &queries);
    }
    for (int i = 0; i < queries.count; i++) {
        const int64_t vector = (int64_t)(query + i / heads) * call->heads + head + i % heads;
        store_mean(call, vector, queries.sums + i * size, queries.total[i]);
        call->lse[vector] = queries.best[i] + logf(queries.total[i]);
    }
}

INLINE int smaller(int a, int b) { return a < b ? a : b; }

void attend(const Call *call) {
    const int group = call->heads / call->kv_heads, most_heads = smaller(group, MOST_QUERIES);
    const int most_tokens = MOST_QUERIES / most_heads;
    for (int row = 0; row < call->rows; row++) {
        const int stop = call->queries[row + 1], ahead = call->lengths[row] - stop; /* position less query */
        for (int query = call->queries[row]; query < stop; query += most_tokens)
            for (int kv_head = 0; kv_head < call->kv_heads; kv_head++)
                for (int head = 0; head < group; head += most_heads)
                    attend_queries(call, row, kv_head, query, query + ahead, smaller(most_tokens, stop - query),
                                   kv_head * group + head, smaller(most_heads, group - head));
    }
}
