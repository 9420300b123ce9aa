//! A fixed pool of threads for blocking calls. Jobs own their data. The pool knows nothing of files
//! or stores.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// The stack size of a thread: jobs are system calls and copies, without deep calls.
const STACK_BYTES: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// The pool. When it is dropped, the threads finish the queued jobs and end.
pub(crate) struct IoPool {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

impl IoPool {
    /// Starts `threads` threads.
    pub(crate) fn new(threads: usize) -> io::Result<IoPool> {
        let shared = Arc::new(Shared { queue: Mutex::default(), work: Condvar::new() });
        let pool = IoPool { shared };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            thread::Builder::new()
                .name("undercroft-io".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || serve(&shared))?;
        }
        Ok(pool)
    }

    /// Runs a job on a free thread, in the order of the calls. The job runs even if its answer is
    /// not awaited. If it panics there is no answer.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.begin(move || {
            // The job's data are dropped before its end is reported, so that files are closed by
            // then.
            let answer = job();
            let _ = sender.send(answer);
        });
        receiver
    }

    /// Runs a job without an answer.
    pub(crate) fn begin(&self, job: impl FnOnce() + Send + 'static) {
        let job = Box::new(job);
        let mut queue = self.shared.lock();
        queue.jobs.push_back(job);
        let wake = queue.idle > 0;
        drop(queue);
        if wake {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, or `None` when the pool is closed and the queue is empty.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

fn serve(shared: &Shared) {
    while let Some(job) = shared.next() {
        // The panic has been printed; a waiting caller notices the closed channel.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
