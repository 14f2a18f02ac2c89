// Streams: queues whose work is done late, and in any order that CUDA's rules allow.
//
// Nothing runs when it is queued. Somebody waits for a stream, an event or a device, or asks
// whether it is ready; then work is taken from the heads of all queues, of which a seed chooses,
// until the one that was waited for is through. A program that leaves out a wait so finds, with
// some seeds, memory that nobody has written yet.
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_WAITING 1024  // entries of all queues, as on a GPU: then some work is done at once

// A place in a stream: what an event records, and what another stream can wait for.
struct mark {
    int done, holders;
    double time;  // in milliseconds
};

struct work {
    struct work *next;
    uint64_t number;  // in the order in which all work was queued
    CUresult (*run)(void *closure);
    struct mark *waits, *makes;
    size_t size;
    max_align_t closure[];
};

struct queue {
    struct work *first, *last;
};

struct stream {
    struct stream *next;
    struct queue queue;
    struct queue captured;
    int device, priority, capturing, destroyed;
    unsigned flags;
};

struct event {
    struct mark *mark;  // of the last time it was recorded
    unsigned flags;
    int device;
};

struct graph {
    struct queue queue;
};

static struct stream legacy[MOST_DEVICES], per_thread[MOST_DEVICES];
static struct stream *streams;  // all others
static uint64_t queued, waiting;
static uint64_t seed, random_state;

// --- the order -----------------------------------------------------------------------------------

// 0: as it was queued. Any other number is a mixture of its own.
EXPORTED void driver_seed(uint64_t number)
{
    lock_driver();
    seed = random_state = number;
    unlock_driver(CUDA_SUCCESS);
}

static size_t draw(size_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

// Calls a function with every stream there is, default ones first.
static void each_stream(void (*visit)(struct stream *stream, void *with), void *with)
{
    for (int i = 0; i < device_count(); ++i) {
        visit(&legacy[i], with);
        visit(&per_thread[i], with);
    }
    for (struct stream *s = streams; s; s = s->next) visit(s, with);
}

static int is_legacy(const struct stream *s) { return s == &legacy[s->device]; }

// Whether a stream and the legacy default stream of its device wait for each other.
static int is_blocking(const struct stream *s)
{
    return !is_legacy(s) && !(s->flags & CU_STREAM_NON_BLOCKING);
}

struct question {
    const struct stream *asker;
    int answer;
};

static void note_earlier(struct stream *s, void *with)
{
    struct question *q = with;
    const int ordered = s->device == q->asker->device && is_blocking(s) && s->queue.first;
    if (ordered && s->queue.first->number < q->asker->queue.first->number) q->answer = 1;
}

// Whether the first work of a stream may run now.
static int is_ready(const struct stream *s)
{
    const struct work *first = s->queue.first;
    if (!first || (first->waits && !first->waits->done)) return 0;
    if (is_legacy(s)) {
        struct question q = {s, 0};
        each_stream(note_earlier, &q);
        return !q.answer;
    }
    const struct work *before = legacy[s->device].queue.first;
    return !(is_blocking(s) && before && before->number < first->number);
}

struct choice {
    struct stream *chosen;
    size_t ready;
};

static void consider(struct stream *s, void *with)
{
    struct choice *c = with;
    if (!is_ready(s)) return;
    ++c->ready;
    if (!c->chosen) {
        c->chosen = s;
    } else if (seed == 0) {
        if (s->queue.first->number < c->chosen->queue.first->number) c->chosen = s;
    } else if (draw(c->ready) == 0) {
        c->chosen = s;
    }
}

// --- running -------------------------------------------------------------------------------------

static sigjmp_buf before_work;
static volatile sig_atomic_t working;
static pthread_t worker;
static struct sigaction others[2];  // what handled these signals before: SIGSEGV, SIGBUS

static void on_fault(int signal)
{
    if (working && pthread_equal(worker, pthread_self())) siglongjmp(before_work, 1);
    // Not our kernel's fault: whoever handled it before does so when the access is tried again.
    sigaction(signal, &others[signal == SIGBUS], NULL);
}

// Runs work; an access outside of memory ends it with the error a GPU would report.
static CUresult guarded(struct work *work)
{
    const struct sigaction ours = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    if (working) return work->run(work->closure);  // queued by the host's own function
    sigaction(SIGSEGV, &ours, &others[0]);
    sigaction(SIGBUS, &ours, &others[1]);
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;
    worker = pthread_self();
    if (!sigsetjmp(before_work, 1)) {
        working = 1;
        result = work->run(work->closure);
    }
    working = 0;
    sigaction(SIGSEGV, &others[0], NULL);
    sigaction(SIGBUS, &others[1], NULL);
    return result;
}

static void let_go(struct mark *mark)
{
    if (mark && --mark->holders == 0) free(mark);
}

static void append(struct queue *queue, struct work *work)
{
    work->next = NULL;
    if (queue->last) queue->last->next = work;
    else queue->first = work;
    queue->last = work;
}

static struct work *take_first(struct queue *queue)
{
    struct work *work = queue->first;
    queue->first = work->next;
    if (!queue->first) queue->last = NULL;
    return work;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void dispose(struct work *work)
{
    let_go(work->waits);
    let_go(work->makes);
    free(work);
}

static void forget(struct stream *stream)
{
    for (struct stream **at = &streams; *at; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            free(stream);
            return;
        }
    }
}

// Runs the first work of some stream; 0 where none can run.
static int run_one(void)
{
    struct choice choice = {NULL, 0};
    each_stream(consider, &choice);
    struct stream *stream = choice.chosen;
    if (!stream) return 0;
    struct work *work = take_first(&stream->queue);
    --waiting;
    if (work->run) {
        const CUresult result = guarded(work);
        if (result) {
            count(1, "failed with %s after %s", driver_error_name(result), last_kernel());
            break_driver(result);
        }
    }
    if (work->makes) {
        work->makes->done = 1;
        work->makes->time = now();
    }
    dispose(work);
    if (stream->destroyed && !stream->queue.first) forget(stream);
    return 1;
}

// --- queueing ------------------------------------------------------------------------------------

static struct work *new_work(CUresult (*run)(void *), const void *closure, size_t size)
{
    struct work *work = calloc(1, sizeof *work + size);
    work->run = run;
    work->size = size;
    if (size) memcpy(work->closure, closure, size);
    return work;
}

static void enqueue(struct stream *stream, struct work *work)
{
    if (stream->capturing) {
        append(&stream->captured, work);
        return;
    }
    work->number = ++queued;
    append(&stream->queue, work);
    if (++waiting > MOST_WAITING) run_one();
}

CUresult submit(struct stream *stream, CUresult (*run)(void *), const void *closure, size_t size)
{
    enqueue(stream, new_work(run, closure, size));
    return CUDA_SUCCESS;
}

// A failed kernel may leave work that can never run: nobody waits for it.
CUresult finish_stream(struct stream *stream)
{
    count(1, "synchronize stream");
    if (stream->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    while (stream->queue.first && run_one()) {}
    return CUDA_SUCCESS;
}

struct device_work {
    int device, left;
};

static void note_work(struct stream *s, void *with)
{
    struct device_work *d = with;
    if (s->device == d->device && s->queue.first) d->left = 1;
}

CUresult finish_device(int device)
{
    struct device_work work;
    do {
        work = (struct device_work){device, 0};
        each_stream(note_work, &work);
    } while (work.left && run_one());
    return CUDA_SUCCESS;
}

CUresult query_stream(struct stream *stream)
{
    if (stream->queue.first) run_one();
    return stream->queue.first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

// --- streams -------------------------------------------------------------------------------------

struct stream *stream_of(void *handle)
{
    const int device = context_device();
    if (device < 0) return NULL;
    legacy[device].device = per_thread[device].device = device;
    const uintptr_t number = (uintptr_t)handle;
    if (number <= 1) return &legacy[device];
    if (number == 2) return &per_thread[device];
    for (struct stream *s = streams; s; s = s->next) {
        if (s == handle && !s->destroyed) return s;
    }
    return NULL;
}

struct stream *create_stream(unsigned flags, int priority)
{
    struct stream *s = calloc(1, sizeof *s);
    s->device = context_device();
    s->flags = flags;
    s->priority = priority;
    s->next = streams;
    streams = s;
    count(1, "create stream");
    return s;
}

// What is queued is still done.
CUresult destroy_stream(void *handle)
{
    struct stream *s = stream_of(handle);
    if (!s || (uintptr_t)handle <= 2) return CUDA_ERROR_INVALID_HANDLE;
    s->destroyed = 1;
    if (!s->queue.first) forget(s);
    return CUDA_SUCCESS;
}

int stream_device(const struct stream *stream) { return stream->device; }
unsigned stream_flags(const struct stream *stream) { return stream->flags; }
int stream_priority(const struct stream *stream) { return stream->priority; }

// --- events --------------------------------------------------------------------------------------

struct event *create_event(unsigned flags)
{
    struct event *event = calloc(1, sizeof *event);
    event->flags = flags;
    event->device = context_device();
    count(1, "create event");
    return event;
}

CUresult destroy_event(struct event *event)
{
    let_go(event->mark);
    free(event);
    return CUDA_SUCCESS;
}

CUresult record_event(struct event *event, struct stream *stream)
{
    if (event->device != stream->device) return CUDA_ERROR_INVALID_HANDLE;
    count(1, "record event");
    struct work *work = new_work(NULL, NULL, 0);
    struct mark *mark = calloc(1, sizeof *mark);
    mark->holders = 2;
    let_go(event->mark);
    event->mark = work->makes = mark;
    enqueue(stream, work);
    return CUDA_SUCCESS;
}

// An event that was never recorded is not waited for.
CUresult wait_for_event(struct stream *stream, struct event *event)
{
    count(1, "wait for event");
    if (!event->mark) return CUDA_SUCCESS;
    struct work *work = new_work(NULL, NULL, 0);
    work->waits = event->mark;
    ++event->mark->holders;
    enqueue(stream, work);
    return CUDA_SUCCESS;
}

CUresult query_event(struct event *event)
{
    count(1, "query event");
    if (event->mark && !event->mark->done) run_one();
    return event->mark && !event->mark->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult finish_event(struct event *event)
{
    count(1, "synchronize event");
    while (event->mark && !event->mark->done && run_one()) {}
    return CUDA_SUCCESS;
}

CUresult elapsed_time(float *milliseconds, struct event *from, struct event *to)
{
    const unsigned untimed = (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING;
    if (untimed || !from->mark || !to->mark) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->mark->done || !to->mark->done) return CUDA_ERROR_NOT_READY;
    *milliseconds = to->mark->time - from->mark->time;
    return CUDA_SUCCESS;
}

// --- graphs --------------------------------------------------------------------------------------

CUresult begin_capture(struct stream *stream)
{
    if (is_legacy(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capturing = 1;
    return CUDA_SUCCESS;
}

CUresult end_capture(struct stream *stream, struct graph **graph)
{
    if (!stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
    *graph = calloc(1, sizeof **graph);
    (*graph)->queue = stream->captured;
    stream->captured = (struct queue){NULL, NULL};
    stream->capturing = 0;
    return CUDA_SUCCESS;
}

int is_capturing(const struct stream *stream) { return stream->capturing; }

CUresult launch_graph(struct graph *graph, struct stream *stream)
{
    count(1, "launch graph");
    for (const struct work *w = graph->queue.first; w; w = w->next) {
        if (w->run) submit(stream, w->run, w->closure, w->size);
    }
    return CUDA_SUCCESS;
}

void destroy_graph(struct graph *graph)
{
    while (graph->queue.first) dispose(take_first(&graph->queue));
    free(graph);
}

// --- copies --------------------------------------------------------------------------------------

struct copying {
    void *to;
    const void *from;  // null where the bytes follow
    size_t size;
    char bytes[];
};

static CUresult run_copy(void *closure)
{
    const struct copying *c = closure;
    if (!is_whole(c->to, c->size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (c->from && !is_whole(c->from, c->size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    memmove(c->to, c->from ? c->from : c->bytes, c->size);
    return CUDA_SUCCESS;
}

static const char *side(int place)
{
    return place == PAGEABLE ? "host" : place == HOST_MEMORY ? "pinned" : "device";
}

static int is_device(int place) { return place != PAGEABLE && place != HOST_MEMORY; }

// Ordinary host memory is read before the call ends, and was written when it ends. Page-locked
// memory is read and written when the stream comes to it.
CUresult copy(void *to, const void *from, size_t size, struct stream *stream, int blocking)
{
    if (size == 0) return CUDA_SUCCESS;
    if (!is_whole(to, size) || !is_whole(from, size)) return CUDA_ERROR_INVALID_VALUE;
    const int target = place_of(to), source = place_of(from);
    count(1, "copy %s to %s", side(source), side(target));
    count(size, "bytes %s to %s", side(source), side(target));
    if (stream->capturing && (target == PAGEABLE || source == PAGEABLE)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const int staged = source == PAGEABLE && is_device(target);
    const size_t length = sizeof(struct copying) + (staged ? size : 0);
    struct work *work = calloc(1, sizeof *work + length);
    work->run = run_copy;
    work->size = length;
    struct copying *c = (struct copying *)work->closure;
    *c = (struct copying){to, staged ? NULL : from, size};
    if (staged) memcpy(c->bytes, from, size);
    enqueue(stream, work);
    const int host_side = !is_device(target) || !is_device(source);
    if ((blocking && host_side) || target == PAGEABLE) {
        while (stream->queue.first && run_one()) {}
    }
    return CUDA_SUCCESS;
}

struct filling {
    void *to;
    int value;
    size_t size;
};

static CUresult run_fill(void *closure)
{
    const struct filling *f = closure;
    if (!is_whole(f->to, f->size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    memset(f->to, f->value, f->size);
    return CUDA_SUCCESS;
}

CUresult fill(void *to, int value, size_t size, struct stream *stream)
{
    if (size == 0) return CUDA_SUCCESS;
    if (place_of(to) == PAGEABLE || !is_whole(to, size)) return CUDA_ERROR_INVALID_VALUE;
    count(1, "fill");
    const struct filling f = {to, value, size};
    return submit(stream, run_fill, &f, sizeof f);
}
