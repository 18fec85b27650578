"""The tasks of the Celery tests. The worker's process imports this module."""

import os
import time

from celery import Celery, Task

app = Celery(
    "leveret-tests",
    broker=os.environ.get("CELERY_BROKER", "memory://"),
    backend=os.environ.get("CELERY_BACKEND", "rpc://"),
)
app.conf.update(
    task_default_queue=os.environ.get("CELERY_QUEUE", "celery"),
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    result_chord_retry_interval=0.2,
    worker_prefetch_multiplier=1,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def clock() -> float:
    """When it ran."""
    return time.time()


@app.task(bind=True, max_retries=5)
def third_time_lucky(self: Task) -> int:
    """Fails twice; how often it was tried again."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    retries: int = self.request.retries
    return retries


@app.task
def echo(text: str) -> str:
    return text
