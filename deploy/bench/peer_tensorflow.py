"""Trains DeepFM with TensorFlow's ParameterServerStrategy: 2 parameter servers and 2 workers, each
a process, and a coordinator that schedules steps.

Updates are asynchronous, as the strategy has no other kind. The table and its accumulators are
split over the servers by row number modulo 2. The optimizers are TensorFlow's own operations,
because Keras no longer supports the strategy. The linear weight of a category is the last column
of its embedding."""

import json
import multiprocessing
import os
import socket
import sys

import numpy as np

import peer_common

SERVERS = 2
WORKERS = 2
BETA1, BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
WIDTH = peer_common.DIM + 1


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine whose ports are free."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def serve(cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Runs a server or worker until it is killed."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(WORKERS)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc"
    ).join()


def coordinate(cluster: dict[str, list[str]], problem: peer_common.Problem) -> None:
    """Trains, evaluates and prints the result."""
    import tensorflow as tf

    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    )
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    generator = np.random.default_rng(peer_common.SEED)
    fields = len(problem.field_rows)
    shard_rows = (problem.rows + SERVERS - 1) // SERVERS

    def initial_rows() -> "tf.Tensor":
        vectors = tf.random.normal([shard_rows, peer_common.DIM], 0, peer_common.INIT_STDDEV)
        return tf.concat([vectors, tf.zeros([shard_rows, 1])], 1)

    with strategy.scope():
        # Variables are placed on the servers in turn.
        shards = [tf.Variable(initial_rows) for _ in range(SERVERS)]
        accumulators = [tf.Variable(lambda: tf.zeros([shard_rows, WIDTH])) for _ in range(SERVERS)]
        layers = []
        inputs = fields * peer_common.DIM
        for outputs in (*peer_common.HIDDEN, 1):
            limit = (6 / (inputs + outputs)) ** 0.5
            weights = generator.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)
            layers += [tf.Variable(weights), tf.Variable(np.zeros(outputs, np.float32))]
            inputs = outputs
        moments = [
            [tf.Variable(np.zeros(layer.shape, np.float32)) for layer in layers] for _ in range(2)
        ]

    def forward(rows: "tf.Tensor") -> "tf.Tensor":
        looked_up = tf.compat.v1.nn.embedding_lookup(shards, rows, partition_strategy="mod")
        vectors = looked_up[:, :, : peer_common.DIM]
        linear = tf.reduce_sum(looked_up[:, :, peer_common.DIM], 1)
        total = tf.reduce_sum(vectors, 1)
        products = 0.5 * (
            tf.reduce_sum(total * total, 1) - tf.reduce_sum(vectors * vectors, [1, 2])
        )
        hidden = tf.reshape(vectors, [-1, fields * peer_common.DIM])
        for i in range(0, len(layers), 2):
            hidden = tf.matmul(hidden, layers[i]) + layers[i + 1]
            if i + 2 < len(layers):
                hidden = tf.nn.relu(hidden)
        return linear + products + hidden[:, 0]

    @tf.function
    def train(rows: "tf.Tensor", labels: "tf.Tensor", step: "tf.Tensor") -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=forward(rows))
            )
        gradients = tape.gradient(loss, shards + layers)
        for shard, accumulator, gradient in zip(shards, accumulators, gradients):
            indices, places = tf.unique(gradient.indices)
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=shard.handle,
                accum=accumulator.handle,
                lr=problem.learning_rate,
                epsilon=peer_common.ADAGRAD_EPSILON,
                grad=tf.math.unsorted_segment_sum(gradient.values, places, tf.size(indices)),
                indices=indices,
            )
        for layer, first, second, gradient in zip(layers, *moments, gradients[SERVERS:]):
            tf.raw_ops.ResourceApplyAdam(
                var=layer.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=BETA1**step,
                beta2_power=BETA2**step,
                lr=problem.dense_learning_rate,
                beta1=BETA1,
                beta2=BETA2,
                epsilon=ADAM_EPSILON,
                grad=gradient,
            )

    predict = tf.function(forward)
    begin = peer_common.now()
    step = 0
    for _ in range(problem.epochs):
        order = generator.permutation(len(problem.train.labels))
        for first in range(0, len(order), problem.batch_size):
            batch = order[first : first + problem.batch_size]
            step += 1
            coordinator.schedule(
                train,
                args=(
                    tf.constant(problem.train.rows[batch]),
                    tf.constant(problem.train.labels[batch]),
                    tf.constant(float(step)),
                ),
            )
            # Otherwise the queue would hold the batches of all steps.
            if step % (4 * WORKERS) == 0:
                coordinator.join()
    coordinator.join()
    end = peer_common.now()
    logits = [
        coordinator.schedule(
            predict, args=(tf.constant(problem.test.rows[first : first + problem.batch_size]),)
        )
        for first in range(0, len(problem.test.labels), problem.batch_size)
    ]
    coordinator.join()
    peer_common.print_result(problem, begin, end, np.concatenate([part.fetch() for part in logits]))


def main() -> int:
    """Starts the servers and workers, and coordinates them."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    problem = peer_common.read_problem()
    addresses = free_addresses(SERVERS + WORKERS + 1)
    cluster = {
        "chief": addresses[:1],
        "ps": addresses[1 : 1 + SERVERS],
        "worker": addresses[1 + SERVERS :],
    }
    context = multiprocessing.get_context("spawn")
    servers = [
        context.Process(target=serve, args=(cluster, job, index), daemon=True)
        for job in ("ps", "worker")
        for index in range(len(cluster[job]))
    ]
    for server in servers:
        server.start()
    coordinate(cluster, problem)
    for server in servers:
        server.kill()
    sys.stdout.flush()
    # A normal exit would hang: the strategy's threads wait for the servers.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
