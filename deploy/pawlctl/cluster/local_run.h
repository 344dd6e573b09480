// One job on a cluster of processes on this machine, from its start to its end.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_RUN_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_RUN_H_

#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/local_cluster.h"
#include "deploy/pawlctl/cluster/local_job.h"
#include "deploy/pawlctl/cluster/out_folder.h"

namespace pawl {

// Runs the job and reports on stdout and stderr. Returns the exit code. No process outlives it
// except as ChildProcess says. Ignores SIGPIPE from then on. REQUIRES: this is the main thread, and
// `out` has the job file.
int RunLocalJob(const LocalJob& job, const RunOptions& options, Programs programs,
                const OutFolder& out, SignalWaiter& signals);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_RUN_H_
