/* Absorbed attention on the CPU: softmax(Q X^T) X and its backward pass, a block of elements at a time in the cache.

   The elements of a block are scored, their weights exponentiated and their mean summed while the block is in the
   first-level cache, so a pass reads the elements once and writes nothing of their number except their gradient.
   native_attention.py compiles and calls this file. A job is a range of rows of one set; threads share the jobs.

   Dimensions:  M queries, in vectors of W   N elements of a block   E features, a multiple of W */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { W = 16, N = 64 };
typedef float vec __attribute__((vector_size(4 * W), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * W), aligned(4)));

static inline vec splat(float x) { return x - (vec){}; }
static inline vec choose(ints mask, vec a, vec b) { return (vec)((mask & (ints)a) | (~mask & (ints)b)); }

/* e^x within two units in the last place, 0 below -87; NaN stays NaN. */
static inline vec exponential(vec x) {
    vec shifted = x * 1.44269504f + 12582912.0f; /* rounds to the nearest integer */
    vec n = shifted - 12582912.0f;
    vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    ints bits = (ints)p + ((ints)shifted << 23);
    return choose(x < -87.0f, splat(0), choose(x == x, (vec)bits, x));
}

/* C[i][j] = beta C[i][j] + sum_k a[i ai + k ak] b[k][j] for rows x columns * W values of C, all in registers. */
static inline __attribute__((always_inline)) void product(const int rows, const int columns, float *c, long ldc,
                                                          const float *a, long ai, long ak, const float *b, long ldb,
                                                          long depth, float beta) {
    vec sum[8][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) sum[i][j] = beta ? *(vec *)(c + i * ldc + W * j) : splat(0);
    for (long k = 0; k < depth; k++)
        for (int j = 0; j < columns; j++) {
            vec right = *(const vec *)(b + k * ldb + W * j);
            for (int i = 0; i < rows; i++) sum[i][j] += a[i * ai + k * ak] * right;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) *(vec *)(c + i * ldc + W * j) = sum[i][j];
}

static void multiply(long rows, long columns, float *c, long ldc, const float *a, long ai, long ak, const float *b,
                     long ldb, long depth, float beta) {
    long j = 0;
    for (; j + 4 * W <= columns; j += 4 * W) {
        long i = 0;
        for (; i + 4 <= rows; i += 4) product(4, 4, c + i * ldc + j, ldc, a + i * ai, ai, ak, b + j, ldb, depth, beta);
        for (; i < rows; i++) product(1, 4, c + i * ldc + j, ldc, a + i * ai, ai, ak, b + j, ldb, depth, beta);
    }
    for (; j < columns; j += W) {
        long i = 0;
        for (; i + 8 <= rows; i += 8) product(8, 1, c + i * ldc + j, ldc, a + i * ai, ai, ak, b + j, ldb, depth, beta);
        for (; i < rows; i++) product(1, 1, c + i * ldc + j, ldc, a + i * ai, ai, ak, b + j, ldb, depth, beta);
    }
}

typedef struct {
    const float *queries, *elements, *bias; /* (B, M, E), rows of all sets, log of the weight of each row or NULL */
    const int64_t *jobs;                    /* set, first row and row after the last of each job */
    long num_jobs, num_queries, features;
    float *means, *logs; /* of each job: (M, E) and (M,); the backward pass writes the gradient of the queries to means */
    const float *set_logs, *corrections, *grad_means; /* backward: of each set, (B, M), (B, M) and (B, M, E) */
    float *grad_elements;                             /* backward: rows of all sets, or NULL */
    int accumulate, threads;
} Problem;

static long padded(const Problem *p) { return (p->num_queries + W - 1) / W * W; }

/* (M, E) to (E, padded M), with zeros. */
static void transpose(const Problem *p, const float *from, float *to) {
    long m = padded(p);
    memset(to, 0, sizeof(float) * m * p->features);
    for (long i = 0; i < p->num_queries; i++)
        for (long e = 0; e < p->features; e++) to[e * m + i] = from[i * p->features + e];
}

/* Adds the log of the weight of each element to its scores. */
static void weigh(const Problem *p, float *scores, long first, long rows, long m) {
    for (long n = 0; p->bias && n < rows; n++)
        for (long i = 0; i < m; i += W) *(vec *)(scores + n * m + i) += p->bias[first + n];
}

static void attend(const Problem *p, long job, float *space) {
    long m = padded(p), features = p->features;
    float *queries = space, *scores = queries + m * features, *sums = scores + N * m, *largest = sums + m * features,
          *total = largest + m, *factor = total + m;
    const int64_t *range = p->jobs + 3 * job;
    transpose(p, p->queries + range[0] * p->num_queries * features, queries);
    memset(sums, 0, sizeof(float) * m * features);
    for (long i = 0; i < m; i++) largest[i] = -INFINITY, total[i] = 0;
    for (long start = range[1]; start < range[2]; start += N) {
        long rows = range[2] - start < N ? range[2] - start : N;
        const float *block = p->elements + start * features;
        multiply(rows, m, scores, m, block, features, 1, queries, m, features, 0);
        weigh(p, scores, start, rows, m);
        int rescale = 0;
        for (long i = 0; i < m; i += W) {
            vec before = *(vec *)(largest + i), most = before;
            for (long n = 0; n < rows; n++) {
                vec score = *(vec *)(scores + n * m + i);
                most = choose(most > score, most, score);
            }
            vec shift = choose(most == -INFINITY, splat(0), most);
            vec scale = exponential(before - shift), sum = *(vec *)(total + i) * scale;
            for (long n = 0; n < rows; n++) {
                vec weight = exponential(*(vec *)(scores + n * m + i) - shift);
                *(vec *)(scores + n * m + i) = weight;
                sum += weight;
            }
            *(vec *)(largest + i) = most, *(vec *)(total + i) = sum, *(vec *)(factor + i) = scale;
            for (long j = 0; j < W; j++) rescale |= scale[j] != 1;
        }
        for (long i = 0; rescale && i < p->num_queries; i++)
            for (long e = 0; e < features; e += W) *(vec *)(sums + i * features + e) *= factor[i];
        multiply(p->num_queries, features, sums, features, scores, 1, m, block, features, rows, 1);
    }
    float *mean = p->means + job * p->num_queries * features, *log = p->logs + job * p->num_queries;
    for (long i = 0; i < p->num_queries; i++) {
        float inverse = total[i] == 0 ? 1 : 1 / total[i];
        for (long e = 0; e < features; e++) mean[i * features + e] = sums[i * features + e] * inverse;
        log[i] = total[i] == 0 ? -INFINITY : largest[i] + logf(total[i]);
    }
}

static void differentiate(const Problem *p, long job, float *space) {
    long m = padded(p), features = p->features;
    float *queries = space, *grads = queries + m * features, *scores = grads + m * features, *products = scores + N * m,
          *log = products + N * m, *correction = log + m, *result = p->means + job * p->num_queries * features;
    const int64_t *range = p->jobs + 3 * job;
    long first = range[0] * p->num_queries;
    const float *own_queries = p->queries + first * features, *own_grads = p->grad_means + first * features;
    transpose(p, own_queries, queries);
    transpose(p, own_grads, grads);
    for (long i = 0; i < m; i++) {
        log[i] = i < p->num_queries ? p->set_logs[first + i] : INFINITY;
        correction[i] = i < p->num_queries ? p->corrections[first + i] : 0;
    }
    memset(result, 0, sizeof(float) * p->num_queries * features);
    for (long start = range[1]; start < range[2]; start += N) {
        long rows = range[2] - start < N ? range[2] - start : N;
        const float *block = p->elements + start * features;
        multiply(rows, m, scores, m, block, features, 1, queries, m, features, 0);
        multiply(rows, m, products, m, block, features, 1, grads, m, features, 0);
        weigh(p, scores, start, rows, m);
        for (long n = 0; n < rows; n++)
            for (long i = 0; i < m; i += W) {
                vec *weight = (vec *)(scores + n * m + i), *grad = (vec *)(products + n * m + i);
                *weight = exponential(*weight - *(vec *)(log + i));
                *grad = *weight * (*grad - *(vec *)(correction + i));
            }
        multiply(p->num_queries, features, result, features, products, 1, m, block, features, rows, 1);
        if (p->grad_elements) {
            float *target = p->grad_elements + start * features;
            multiply(rows, features, target, features, scores, m, 1, own_grads, features, p->num_queries, p->accumulate);
            multiply(rows, features, target, features, products, m, 1, own_queries, features, p->num_queries, 1);
        }
    }
}

typedef struct {
    const Problem *problem;
    long first, last;
} Share;

static void *work(void *argument) {
    const Share *share = argument;
    const Problem *p = share->problem;
    float *space = malloc(sizeof(float) * (padded(p) * (2 * p->features + 2 * N + 4)));
    if (!space) return argument;
    for (long job = share->first; job < share->last; job++)
        if (p->grad_means)
            differentiate(p, job, space);
        else
            attend(p, job, space);
    free(space);
    return NULL;
}

/* Runs all jobs; returns 0, or 1 if memory is missing. */
int run(const Problem *p) {
    long threads = p->threads < p->num_jobs ? p->threads : p->num_jobs, failed = 0, started = 0;
    pthread_t others[256];
    Share shares[256];
    threads = threads < 1 ? 1 : threads > 256 ? 256 : threads;
    for (long i = 0; i < threads; i++)
        shares[i] = (Share){p, p->num_jobs * i / threads, p->num_jobs * (i + 1) / threads};
    for (long i = 1; i < threads && !pthread_create(others + i, NULL, work, shares + i); i++) started++;
    failed |= work(shares) != NULL;
    for (long i = started + 1; i < threads; i++) failed |= work(shares + i) != NULL; /* no more threads were allowed */
    for (long i = 1; i <= started; i++) {
        void *result;
        pthread_join(others[i], &result);
        failed |= result != NULL;
    }
    return failed;
}

/* Merges the parts of each set by their denominators, or adds them up if there are no logs. */
void merge(const Problem *p, float *merged, float *logs, long sets) {
    long features = p->features;
    memset(merged, 0, sizeof(float) * sets * p->num_queries * features);
    for (long job = 0; job < p->num_jobs;) {
        long set = p->jobs[3 * job], end = job;
        while (end < p->num_jobs && p->jobs[3 * end] == set) end++;
        for (long i = 0; i < p->num_queries; i++) {
            float *target = merged + (set * p->num_queries + i) * features, largest = -INFINITY, total = 0;
            for (long part = job; logs && part < end; part++) {
                float log = p->logs[part * p->num_queries + i];
                largest = log > largest || log != log ? log : largest;
            }
            float shift = largest == -INFINITY ? 0 : largest;
            for (long part = job; part < end; part++) {
                float weight = logs ? expf(p->logs[part * p->num_queries + i] - shift) : 1;
                const float *source = p->means + (part * p->num_queries + i) * features;
                total += weight;
                for (long e = 0; e < features; e++) target[e] += weight * source[e];
            }
            if (!logs) continue;
            for (long e = 0; e < features; e++) target[e] /= total == 0 ? 1 : total;
            logs[set * p->num_queries + i] = total == 0 ? INFINITY : largest + logf(total);
        }
        job = end;
    }
}
