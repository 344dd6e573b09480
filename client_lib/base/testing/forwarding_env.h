// A file system that passes every call on to another one.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_FORWARDING_ENV_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_FORWARDING_ENV_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"

namespace pawl {

// A test derives from it and overrides the calls that it observes or fails. Thread-safe.
class ForwardingEnv : public Env {
 public:
  // `env` outlives this.
  explicit ForwardingEnv(Env& env) : env_(env) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return env_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return env_.OpenForAppend(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    return env_.OpenForRead(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return env_.Rename(from, to);
  }
  absl::Status Delete(const std::string& path) override { return env_.Delete(path); }
  absl::Status MakeFolder(const std::string& path) override { return env_.MakeFolder(path); }
  absl::Status DeleteFolder(const std::string& path) override { return env_.DeleteFolder(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return env_.List(folder);
  }
  absl::Status SyncFolder(const std::string& folder) override { return env_.SyncFolder(folder); }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return env_.FileSize(path);
  }
  void DropCached(const std::string& path) override { env_.DropCached(path); }
  absl::StatusOr<std::unique_ptr<FolderLock>> LockFolder(const std::string& folder) override {
    return env_.LockFolder(folder);
  }

 private:
  Env& env_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_FORWARDING_ENV_H_
