// The folder with the files of a run of `pawlctl run`.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_OUT_FOLDER_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_OUT_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

// The folder, locked against a second run until this object is destroyed or the process ends. Not
// thread-safe.
//
//   job.pbtxt        the job as it ran: with --set applied and absolute paths
//   scheduler.addr   host:port of the scheduler, as soon as it listens
//   logs/NODE.log    the output of each process
//   data/            the processes' own folders
//   tls/ROLE/        with --tls: the --tls_dir of processes with that role
//   tensorboard/     the learning curve, while the job runs: tensorboard --logdir=OUT/tensorboard
//   curve.jsonl      the same as JSON lines (scheduler/curve/curve_file.h)
//   metrics.json     the result, after the end of the job
class OutFolder {
 public:
  // Creates the folder, or removes the files of an earlier run. FAILED_PRECONDITION: another run
  // uses the folder, or it holds files with these names that no run made.
  static absl::StatusOr<std::unique_ptr<OutFolder>> Open(const std::string& path);

  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string job_file() const { return path_ + "/job.pbtxt"; }
  std::string address_file() const { return path_ + "/scheduler.addr"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string curve_file() const { return path_ + "/curve.jsonl"; }
  std::string metrics_file() const { return path_ + "/metrics.json"; }
  std::string log(absl::string_view node) const;
  // Created by the process itself.
  std::string data(absl::string_view process) const;
  // Created by MakeCertificates.
  std::string tls(absl::string_view role) const;

  // Writes a file atomically.
  absl::Status Write(const std::string& path, absl::string_view content) const;

 private:
  OutFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_OUT_FOLDER_H_
