"""Expected results of the optimizers in double precision, for update_rule_test.

Written from the papers and proto/types.proto, with the C library's pow and cos, independently of
the C++ code's order of operations. Prints seven lines for each case:

  the spec as protobuf text
  row width, scale
  the step of each update
  weights before
  the gradient of each update
  weights after each update
  slots after each update
"""

import math
import struct


def f32(x):
    """The float32 nearest to x, as in a protobuf field or a gradient."""
    return struct.unpack("f", struct.pack("f", x))[0]


class Numbers:
    """A fixed sequence of numbers in [-1, 1): Knuth's MMIX linear congruential generator."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**23 - 1.0


def sign(x):
    return (x > 0) - (x < 0)


def learning_rate(base, schedule, step):
    rate = base
    warmup = schedule.get("warmup_steps", 0)
    if warmup:
        rate *= min(1.0, (step + 1) / warmup)
    if "step" in schedule:
        rate *= math.pow(schedule["step"]["gamma"], step // schedule["step"]["every_steps"])
    if "cosine" in schedule:
        floor = schedule["cosine"]["floor"]
        total = schedule["cosine"]["total_steps"]
        rate *= floor + (1.0 - floor) * (1.0 + math.cos(math.pi * min(step, total) / total)) / 2.0
    if "polynomial" in schedule:
        floor = schedule["polynomial"]["floor"]
        total = schedule["polynomial"]["total_steps"]
        left = 1.0 - min(step, total) / total
        rate *= floor + (1.0 - floor) * left ** schedule["polynomial"]["power"]
    if "cosine_restarts" in schedule:
        floor = schedule["cosine_restarts"]["floor"]
        period = schedule["cosine_restarts"]["first_period_steps"]
        while step >= period:
            step -= period
            period *= schedule["cosine_restarts"]["period_factor"]
        rate *= floor + (1.0 - floor) * (1.0 + math.cos(math.pi * step / period)) / 2.0
    return rate


def prepare(gradient, weights, scale, spec):
    g = [scale * x for x in gradient]
    bound = spec.get("clip_value", 0.0)
    if bound:
        g = [max(-bound, min(bound, x)) for x in g]
    limit = spec.get("clip_norm", 0.0)
    if limit:
        norm = math.sqrt(math.fsum(x * x for x in g))
        if norm > limit:
            g = [x * limit / norm for x in g]
    return [x + spec.get("l2", 0.0) * w + spec.get("l1", 0.0) * sign(w) for x, w in zip(g, weights)]


class Sgd:
    defaults = {}

    def __init__(self, p, width):
        pass

    def update(self, p, rate, t, w, g):
        return [wi - rate * gi for wi, gi in zip(w, g)]

    def slots(self):
        return []


class Momentum:
    defaults = {"momentum": 0.9, "nesterov": False}

    def __init__(self, p, width):
        self.v = [0.0] * width

    def update(self, p, rate, t, w, g):
        mu = p["momentum"]
        self.v = [mu * vi + gi for vi, gi in zip(self.v, g)]
        direction = [gi + mu * vi for gi, vi in zip(g, self.v)] if p["nesterov"] else self.v
        return [wi - rate * di for wi, di in zip(w, direction)]

    def slots(self):
        return self.v


class Adagrad:
    defaults = {"initial_accumulator": 0.0, "epsilon": 1e-10}

    def __init__(self, p, width):
        self.a = [p["initial_accumulator"]] * width

    def update(self, p, rate, t, w, g):
        self.a = [ai + gi**2 for ai, gi in zip(self.a, g)]
        return [wi - rate / (math.sqrt(ai) + p["epsilon"]) * gi for wi, gi, ai in zip(w, g, self.a)]

    def slots(self):
        return self.a


class RowwiseAdagrad:
    defaults = {"initial_accumulator": 0.0, "epsilon": 1e-10}

    def __init__(self, p, width):
        self.a = p["initial_accumulator"]

    def update(self, p, rate, t, w, g):
        self.a += math.fsum(gi**2 for gi in g) / len(g)
        return [wi - rate / (math.sqrt(self.a) + p["epsilon"]) * gi for wi, gi in zip(w, g)]

    def slots(self):
        return [self.a]


class Rmsprop:
    defaults = {"rho": 0.99, "epsilon": 1e-8}

    def __init__(self, p, width):
        self.a = [0.0] * width

    def update(self, p, rate, t, w, g):
        self.a = [p["rho"] * ai + (1.0 - p["rho"]) * gi**2 for ai, gi in zip(self.a, g)]
        return [wi - rate / (math.sqrt(ai) + p["epsilon"]) * gi for wi, gi, ai in zip(w, g, self.a)]

    def slots(self):
        return self.a


class Adam:
    defaults = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

    def __init__(self, p, width):
        self.m = [0.0] * width
        self.v = [0.0] * width

    def update(self, p, rate, t, w, g):
        b1, b2 = p["beta1"], p["beta2"]
        self.m = [b1 * mi + (1.0 - b1) * gi for mi, gi in zip(self.m, g)]
        self.v = [b2 * vi + (1.0 - b2) * gi**2 for vi, gi in zip(self.v, g)]
        m_hat = [mi / (1.0 - math.pow(b1, t)) for mi in self.m]
        v_hat = [vi / (1.0 - math.pow(b2, t)) for vi in self.v]
        return [
            wi - rate * mi / (math.sqrt(vi) + p["epsilon"]) for wi, mi, vi in zip(w, m_hat, v_hat)
        ]

    def slots(self):
        return self.m + self.v


class Adamw(Adam):
    defaults = dict(Adam.defaults, weight_decay=0.01)

    def update(self, p, rate, t, w, g):
        decay = [rate * p["weight_decay"] * wi for wi in w]
        return [wi - di for wi, di in zip(super().update(p, rate, t, w, g), decay)]


class Ftrl:
    defaults = {"beta": 1.0, "l1": 0.0, "l2": 0.0, "initial_accumulator": 0.1}

    def __init__(self, p, width):
        self.n = [p["initial_accumulator"]] * width
        self.z = [0.0] * width

    def update(self, p, rate, t, w, g):
        if rate < 1e-30:
            return w
        result = []
        for i, gi in enumerate(g):
            sigma = (math.sqrt(self.n[i] + gi**2) - math.sqrt(self.n[i])) / rate
            self.z[i] += gi - sigma * w[i]
            self.n[i] += gi**2
            if abs(self.z[i]) <= p["l1"]:
                result.append(0.0)
            else:
                step = 1.0 / ((p["beta"] + math.sqrt(self.n[i])) / rate + p["l2"])
                result.append(-step * (self.z[i] - sign(self.z[i]) * p["l1"]))
        return result

    def slots(self):
        return self.n + self.z


OPTIMIZERS = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adagrad": Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "rmsprop": Rmsprop,
    "adam": Adam,
    "adamw": Adamw,
    "ftrl": Ftrl,
}


def text(fields):
    """Protobuf text."""
    parts = []
    for name, value in fields.items():
        if isinstance(value, dict):
            parts.append("%s { %s }" % (name, text(value)))
        elif isinstance(value, bool):
            parts.append("%s: %s" % (name, "true" if value else "false"))
        else:
            parts.append("%s: %r" % (name, value))
    return " ".join(parts)


def rounded(fields):
    """The same with every number rounded as in the message's float fields."""
    return {
        name: (
            rounded(value)
            if isinstance(value, dict)
            else f32(value)
            if isinstance(value, float)
            else value
        )
        for name, value in fields.items()
    }


def case(seed, kind, own, common, steps, width, scale):
    spec = {kind: own}
    spec.update(common)
    numbers = Numbers(seed)
    own32 = rounded(dict(OPTIMIZERS[kind].defaults, **own))
    common32 = rounded(common)
    weights = [f32(numbers.next()) for _ in range(width)]
    # Some weights are 0, for which L1 has no sign.
    weights = [0.0 if i % 5 == 3 else w for i, w in enumerate(weights)]
    gradients = [[f32(2.0 * numbers.next()) for _ in range(width)] for _ in steps]
    optimizer = OPTIMIZERS[kind](own32, width)
    w = list(weights)
    all_weights = []
    all_slots = []
    for t, (step, gradient) in enumerate(zip(steps, gradients), 1):
        rate = learning_rate(own32["learning_rate"], common32.get("schedule", {}), step)
        prepared = prepare(gradient, w, f32(scale), common32)
        w = [(1.0 - rate * common32.get("weight_decay", 0.0)) * x for x in w]
        w = optimizer.update(own32, rate, t, w, prepared)
        all_weights += w
        all_slots += optimizer.slots()

    print(text(spec))
    print(width, scale)
    for values in (steps, weights, (x for g in gradients for x in g), all_weights, all_slots):
        print(*values)


def main():
    base = {
        "sgd": [{"learning_rate": 0.1}],
        "momentum": [
            {"learning_rate": 0.05},
            {"learning_rate": 0.05, "momentum": 0.5, "nesterov": True},
            {"learning_rate": 0.05, "momentum": 0.0},
        ],
        "adagrad": [
            {"learning_rate": 0.1},
            {"learning_rate": 0.1, "initial_accumulator": 0.0, "epsilon": 1e-3},
        ],
        "rowwise_adagrad": [
            {"learning_rate": 0.1},
            {"learning_rate": 0.1, "initial_accumulator": 0.5, "epsilon": 0.01},
        ],
        "rmsprop": [{"learning_rate": 0.01}, {"learning_rate": 0.01, "rho": 0.5, "epsilon": 0.1}],
        "adam": [
            {"learning_rate": 0.01},
            {"learning_rate": 0.01, "beta1": 0.5, "beta2": 0.9, "epsilon": 0.1},
        ],
        "adamw": [{"learning_rate": 0.01}, {"learning_rate": 0.1, "weight_decay": 0.3}],
        "ftrl": [
            {"learning_rate": 0.1},
            {"learning_rate": 0.2, "beta": 0.5, "l1": 0.7, "l2": 0.1, "initial_accumulator": 0.0},
        ],
    }
    commons = [
        {},
        {"clip_value": 0.6},
        {"clip_norm": 1.5},
        {"l1": 0.02},
        {"l2": 0.1},
        {"weight_decay": 0.2},
        {"l1": 0.01, "weight_decay": 0.1, "schedule": {"warmup_steps": 4}},
        {"clip_value": 0.7, "clip_norm": 1.25, "l1": 0.01, "l2": 0.05},
        {"schedule": {"warmup_steps": 4}},
        {"schedule": {"step": {"every_steps": 3, "gamma": 0.5}, "warmup_steps": 2}},
        {"schedule": {"cosine": {"total_steps": 9, "floor": 0.1}}},
        {"schedule": {"polynomial": {"total_steps": 9, "floor": 0.1, "power": 1.5}}},
        {
            "schedule": {
                "cosine_restarts": {"first_period_steps": 3, "period_factor": 2, "floor": 0.1}
            }
        },
    ]
    seed = 1
    for kind, variants in base.items():
        for own in variants:
            for common in commons:
                if kind == "ftrl" and {"l1", "l2", "weight_decay"} & set(common):
                    continue
                if kind == "adamw" and "weight_decay" in common:
                    continue
                seed += 1
                # Skip some steps: not every step updates a row.
                steps = [0, 1, 2, 4, 7, 20]
                case(seed, kind, own, common, steps, 1 + seed % 21, [1.0, 0.25][seed % 2])
    # The rate is 0 from step 9 on.
    ended = {"schedule": {"cosine": {"total_steps": 9, "floor": 0.0}}}
    case(seed + 1, "ftrl", {"learning_rate": 0.1}, ended, [0, 1, 2, 4, 9, 20], 7, 1.0)


if __name__ == "__main__":
    main()
