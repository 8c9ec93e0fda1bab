import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.LongAdder;

/**
 * Counts with a LongAdder on the given number of threads. Prints "ready" after a warm-up; then answers each line with a
 * sample: operations per second over all threads, the longest time between two clock reads, the time between the
 * first and the last start (both in nanoseconds), the operations asked for and those counted, so far. Without
 * arguments it only checks that it starts.
 */
final class LongAdderPeer {
    private static final LongAdder COUNTER = new LongAdder();
    private static long asked;

    private final int batch;
    private final long sampleNs;
    private long from;
    private long longest;
    private long done;
    private long until;

    private LongAdderPeer(int batch, long sampleNs) {
        this.batch = batch;
        this.sampleNs = sampleNs;
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 0) {
            return;
        }
        int threads = Integer.parseInt(args[0]);
        long sampleNs = Long.parseLong(args[1]);
        int batch = Integer.parseInt(args[2]);
        // Long enough for the JIT compiler to compile the loop and become idle.
        long warm = System.nanoTime() + 500_000_000L;
        while (System.nanoTime() < warm) {
            sample(threads, sampleNs, batch);
        }
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            System.out.println(sample(threads, sampleNs, batch));
        }
    }

    private static String sample(int threads, long sampleNs, int batch) throws Exception {
        CyclicBarrier start = new CyclicBarrier(threads);
        LongAdderPeer[] runs = new LongAdderPeer[threads];
        Thread[] workers = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            LongAdderPeer run = runs[i] = new LongAdderPeer(batch, sampleNs);
            workers[i] = new Thread(() -> run.run(start));
            workers[i].start();
        }
        double rate = 0;
        long longest = 0;
        long first = Long.MAX_VALUE;
        long last = Long.MIN_VALUE;
        for (int i = 0; i < threads; i++) {
            workers[i].join();
            LongAdderPeer run = runs[i];
            rate += run.done * 1e9 / (run.until - run.from);
            longest = Math.max(longest, run.longest);
            first = Math.min(first, run.from);
            last = Math.max(last, run.from);
            asked += run.done;
        }
        return (long) rate + " " + longest + " " + (last - first) + " " + asked + " " + COUNTER.sum();
    }

    private void run(CyclicBarrier start) {
        try {
            start.await();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
        from = System.nanoTime();
        until = from;
        while (until - from < sampleNs) {
            for (int i = 0; i < batch; i++) {
                COUNTER.increment();
            }
            done += batch;
            long now = System.nanoTime();
            longest = Math.max(longest, now - until);
            until = now;
        }
    }
}
