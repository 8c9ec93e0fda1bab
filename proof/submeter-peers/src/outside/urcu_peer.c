/*
 * Counts with one counter per thread, on a list that readers walk under RCU: the way to count with liburcu. Its
 * protocol is that of LongAdderPeer.java.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <urcu.h>
#include <urcu/rculist.h>

struct counter {
	unsigned long count;
	struct cds_list_head list;
};

struct run {
	pthread_t thread;
	int64_t from, until, longest;
	unsigned long done;
};

static CDS_LIST_HEAD(counters);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;
/* The counts of exited threads; under the lock. */
static unsigned long ended;
static int64_t sample_ns;
static long batch;
static __thread struct counter own;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void add_one(void)
{
	CMM_STORE_SHARED(own.count, CMM_LOAD_SHARED(own.count) + 1);
}

static unsigned long sum(void)
{
	struct counter *counter;
	unsigned long total;

	/* The lock keeps a thread from exiting between the two steps. */
	pthread_mutex_lock(&lock);
	total = ended;
	rcu_read_lock();
	cds_list_for_each_entry_rcu(counter, &counters, list)
		total += CMM_LOAD_SHARED(counter->count);
	rcu_read_unlock();
	pthread_mutex_unlock(&lock);
	return total;
}

static void *work(void *arg)
{
	struct run *run = arg;
	int64_t now;
	long i;

	rcu_register_thread();
	own.count = 0;
	pthread_mutex_lock(&lock);
	cds_list_add_rcu(&own.list, &counters);
	pthread_mutex_unlock(&lock);
	pthread_barrier_wait(&start);
	run->from = run->until = now_ns();
	while (run->until - run->from < sample_ns) {
		for (i = 0; i < batch; i++)
			add_one();
		run->done += batch;
		now = now_ns();
		if (now - run->until > run->longest)
			run->longest = now - run->until;
		run->until = now;
	}
	pthread_mutex_lock(&lock);
	ended += own.count;
	cds_list_del_rcu(&own.list);
	pthread_mutex_unlock(&lock);
	/* No reader may use this thread's storage after its exit. */
	synchronize_rcu();
	rcu_unregister_thread();
	return NULL;
}

/* Starts a thread on each of the CPUs, and waits for all of them. */
static int sample(int threads, char **cpus, struct run *runs)
{
	int i;

	if (pthread_barrier_init(&start, NULL, threads))
		return -1;
	for (i = 0; i < threads; i++) {
		pthread_attr_t attr;
		cpu_set_t set;
		int refused;

		runs[i] = (struct run) { .done = 0 };
		CPU_ZERO(&set);
		CPU_SET(atoi(cpus[i]), &set);
		pthread_attr_init(&attr);
		pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
		refused = pthread_create(&runs[i].thread, &attr, work, &runs[i]);
		pthread_attr_destroy(&attr);
		if (refused)
			exit(1);
	}
	for (i = 0; i < threads; i++)
		pthread_join(runs[i].thread, NULL);
	pthread_barrier_destroy(&start);
	return 0;
}

/*
 * Arguments: nanoseconds per sample, operations per batch, and a CPU for each thread; or none, which only checks
 * that it starts.
 */
int main(int argc, char **argv)
{
	int threads = argc - 3, i, c;
	unsigned long asked = 0;
	struct run *runs;

	if (argc == 1)
		return 0;
	if (threads < 1)
		return 2;
	sample_ns = atoll(argv[1]);
	batch = atol(argv[2]);
	runs = calloc(threads, sizeof(*runs));
	if (!runs)
		return 1;
	puts("ready");
	fflush(stdout);
	while ((c = getchar()) != EOF) {
		int64_t longest = 0, first = INT64_MAX, last = INT64_MIN;
		double rate = 0;

		if (c != '\n')
			continue;
		if (sample(threads, argv + 3, runs))
			return 1;
		for (i = 0; i < threads; i++) {
			rate += runs[i].done * 1e9 / (runs[i].until - runs[i].from);
			longest = runs[i].longest > longest ? runs[i].longest : longest;
			first = runs[i].from < first ? runs[i].from : first;
			last = runs[i].from > last ? runs[i].from : last;
			asked += runs[i].done;
		}
		printf("%.0f %lld %lld %lu %lu\n", rate, (long long)longest,
		       (long long)(last - first), asked, sum());
		fflush(stdout);
	}
	free(runs);
	return 0;
}
