// Curator's mutex under the load of `hot`. Arguments: port, threads. Each line of standard input is a number of
// milliseconds; the answer is how many times the lock was taken and given back in that time.

import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient("127.0.0.1:" + arguments[0], 30000, 10000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        int threads = Integer.parseInt(arguments[1]);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLong()) {
            long millis = lines.nextLong();
            AtomicBoolean stop = new AtomicBoolean();
            AtomicLong pairs = new AtomicLong();
            CountDownLatch done = new CountDownLatch(threads);
            long start = System.nanoTime();
            for (int n = 0; n < threads; n++) {
                Thread thread = new Thread(() -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, "/bench-curator");
                    try {
                        while (!stop.get()) {
                            mutex.acquire();
                            Thread.yield();
                            mutex.release();
                            pairs.incrementAndGet();
                        }
                    } catch (Exception error) {
                        error.printStackTrace();
                        System.exit(1);
                    }
                    done.countDown();
                });
                thread.setDaemon(true);
                thread.start();
            }
            Thread.sleep(millis);
            stop.set(true);
            done.await();
            System.out.println(pairs.get() * 1e9 / (System.nanoTime() - start));
            System.out.flush();
        }
    }
}
