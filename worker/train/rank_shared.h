// What the ranks of a process share.
#ifndef PAWL_WORKER_TRAIN_RANK_SHARED_H_
#define PAWL_WORKER_TRAIN_RANK_SHARED_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/table.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_store.h"
#include "worker/process/progress_board.h"
#include "worker/process/rendezvous.h"
#include "worker/train/dense_source.h"
#include "worker/train/step_plan.h"

namespace pawl {

// Deadline of the pulls, pushes and ends of steps, at least. A pull waits for the slowest peer's
// step; a failure of the job ends it sooner.
inline constexpr std::chrono::minutes kStepTimeout{10};

// All of it outlives the ranks' trainers.
struct RankShared {
  const Job& job;  // with its defaults filled in
  uint32_t logical_workers = 1;
  const Sampler& sampler;
  const StepPlan& plan;
  const Dataset& train;
  const Dataset* eval = nullptr;  // null: no evaluation
  // The model's, in its order, as created.
  const std::vector<Table>& tables;
  // For training and for evaluations. Null: every rank pulls the dense tables for itself.
  DenseSource* dense = nullptr;
  DenseSource* evaluation_dense = nullptr;
  // dense_path: ALLREDUCE: `dense` is the replica, which takes the dense gradients too, and the
  // store is where it is written back to. Both null otherwise. The replica lies in the memory that
  // the models' dense spans are of (DenseStaysOnDevice).
  DenseReplica* replica = nullptr;
  const DenseStore* store = nullptr;
  Rendezvous& rendezvous;
  ProgressBoard& progress;
  // Waited in each step before it is ended, to play a slow worker.
  MonotonicDuration step_delay = MonotonicDuration::zero();
  // For each element of a dense table in the forward pass, twice as long in the backward pass: to
  // play a slow model. With dense_path: ALLREDUCE and without micro-batches.
  MonotonicDuration element_delay = MonotonicDuration::zero();
  // Longer than the scheduler lets the job stand still: it is the scheduler that gives the job up.
  MonotonicDuration step_timeout = kStepTimeout;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_SHARED_H_
