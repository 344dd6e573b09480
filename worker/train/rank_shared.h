// Shared by the ranks of a process.
#ifndef PAWL_WORKER_TRAIN_RANK_SHARED_H_
#define PAWL_WORKER_TRAIN_RANK_SHARED_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/job/straggler.h"
#include "client_lib/table.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/training_data.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_source.h"
#include "worker/dense/dense_store.h"
#include "worker/process/progress_board.h"
#include "worker/process/rendezvous.h"
#include "worker/train/step_plan.h"

namespace pawl {

// Minimum deadline of pulls, pushes and ends of steps. A pull waits for the slowest peer's step; a
// failure of the job ends the wait sooner.
inline constexpr std::chrono::minutes kStepTimeout{10};

// All of it outlives the ranks' trainers.
struct RankShared {
  const Job& job;  // with its defaults filled in
  uint32_t logical_workers = 1;
  const Sampler& sampler;
  const StepPlan& plan;
  const TrainingData& train;
  const TrainingData* eval = nullptr;  // null: no evaluation
  // `eval`, if it is in memory. REQUIRES: with evaluation.group_by it is.
  const Dataset* eval_in_memory = nullptr;
  // The model's tables in the model's order, as created.
  const std::vector<Table>& tables;
  // Sources for training and for evaluations. Null: every rank pulls the dense tables itself.
  DenseSource* dense = nullptr;
  DenseSource* evaluation_dense = nullptr;
  // With dense_path: ALLREDUCE, `dense` is the replica, which also takes the dense gradients, and
  // the store is where the replica is written back to. Otherwise both are null. The replica lies in
  // the memory to which the models' dense spans refer (DenseStaysOnDevice).
  DenseReplica* replica = nullptr;
  const DenseStore* store = nullptr;
  Rendezvous& rendezvous;
  ProgressBoard& progress;
  // A delay in each step before its end, to simulate a slow worker.
  MonotonicDuration step_delay = MonotonicDuration::zero();
  // Delays in each step before its gradients are computed, for experiments.
  Straggler straggler = {};
  // A delay for each element of a dense table: once in the forward pass and twice in the backward
  // pass, to simulate a slow model. Needs dense_path: ALLREDUCE without micro-batches.
  MonotonicDuration element_delay = MonotonicDuration::zero();
  // Longer than the scheduler lets the job stand still, so that the scheduler gives up first.
  MonotonicDuration step_timeout = kStepTimeout;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_SHARED_H_
