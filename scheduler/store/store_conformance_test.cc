// The contract of StateStore, for each implementation.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/process/child_process.h"
#include "scheduler/store/etcd_client.h"
#include "scheduler/store/etcd_store.h"
#include "scheduler/store/file_store.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/testing/etcd_cluster.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

MonotonicTime In(MonotonicDuration duration) { return Clock::Real().Now() + duration; }

// Leases of etcd's leaders. kLease expires well within a campaign of kLong, kLongLease does not.
constexpr seconds kLease{2};
constexpr seconds kLong{30};
constexpr seconds kLongLease{60};
constexpr milliseconds kShort{300};

// One place and its stores.
class Backend {
 public:
  virtual ~Backend() = default;
  // In OpenStore's syntax.
  virtual std::string Place() const = 0;
  // `lease` applies to etcd only.
  virtual std::unique_ptr<StateStore> Open(seconds lease) = 0;
  // Lets another process lead while the leader lives and does not notice.
  virtual void BreakLeadership() = 0;
};

std::string NewFolder() {
  std::string name = absl::StrCat(testing::TempDir(), "/store-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make " << name;
  return name;
}

class FileBackend final : public Backend {
 public:
  FileBackend() : folder_(NewFolder() + "/scheduler/state") {}
  std::string Place() const override { return absl::StrCat("file:", folder_); }
  std::unique_ptr<StateStore> Open(seconds) override {
    return std::make_unique<FileStore>(FileStoreOptions{folder_});
  }
  void BreakLeadership() override { EXPECT_TRUE(std::filesystem::remove(folder_ + "/LOCK")); }

 private:
  const std::string folder_;
};

class EtcdBackend final : public Backend {
 public:
  EtcdBackend() {
    static int prefixes = 0;
    prefix_ = absl::StrCat("pawl/test-", ++prefixes);
  }
  std::string Place() const override { return absl::StrCat("etcd://", Endpoint(), "/", prefix_); }
  std::unique_ptr<StateStore> Open(seconds lease) override {
    return std::make_unique<EtcdStore>(
        EtcdStoreOptions{.endpoints = {Endpoint()}, .prefix = prefix_, .lease_ttl = lease});
  }
  void BreakLeadership() override {
    EtcdClient client({.endpoints = {Endpoint()}, .attempt_timeout = milliseconds(5000)});
    etcdserverpb::TxnRequest request;
    request.add_success()->mutable_request_delete_range()->set_key(
        absl::StrCat(prefix_, "/leader"));
    const auto response = client.Txn(request, In(seconds(5)));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->responses(0).response_delete_range().deleted(), 1);
  }

  // One cluster for all tests. Each test has its own prefix.
  static void StartCluster() {
    auto started = EtcdCluster::Start({.folder = NewFolder()});
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = started->release();
  }
  static void StopCluster() {
    delete cluster_;
    cluster_ = nullptr;
  }

 private:
  static std::string Endpoint() {
    return cluster_ == nullptr ? "127.0.0.1:1" : cluster_->endpoints()[0];
  }

  static EtcdCluster* cluster_;
  std::string prefix_;
};
EtcdCluster* EtcdBackend::cluster_ = nullptr;

class StoreConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { EtcdBackend::StartCluster(); }
  static void TearDownTestSuite() { EtcdBackend::StopCluster(); }

  void SetUp() override {
    if (GetParam() == "File") {
      backend_ = std::make_unique<FileBackend>();
    } else {
      backend_ = std::make_unique<EtcdBackend>();
    }
  }

  std::unique_ptr<StateStore> Open(seconds lease = kLease) { return backend_->Open(lease); }

  // A store that leads and has called Load.
  std::unique_ptr<StateStore> Lead(seconds lease = kLease) {
    std::unique_ptr<StateStore> store = Open(lease);
    absl::Status status = store->Campaign(In(kLong));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(store->IsLeader());
    const auto loaded = store->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return store;
  }

  // Loads the state as a new leader.
  StoredState LoadAsNextLeader() {
    std::unique_ptr<StateStore> store = Open();
    const absl::Status status = store->Campaign(In(kLong));
    EXPECT_TRUE(status.ok()) << status;
    const auto loaded = store->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() && loaded->has_value() ? **loaded : StoredState();
  }

  // A process that leads and has saved `revision`; null on failure.
  std::unique_ptr<ChildProcess> StartHolder(uint64_t revision, const std::string& state) {
    const std::string folder = NewFolder();
    ready_ = folder + "/ready";
    go_ = folder + "/go";
    const std::string program = absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                                             "/scheduler/store/testing/store_holder");
    auto child =
        ChildProcess::Start({"holder",
                             program,
                             {backend_->Place(), absl::StrCat(revision), state, ready_, go_},
                             folder + "/log"});
    EXPECT_TRUE(child.ok()) << child.status();
    const auto ready = [&] { return access(ready_.c_str(), F_OK) == 0; };
    Eventually([&] { return ready() || (*child)->HasEnded(); });
    if (ready()) return *std::move(child);
    ADD_FAILURE() << "the holder " << ((*child)->HasEnded() ? (*child)->HowItEnded() : "hangs")
                  << ": " << absl::StrJoin((*child)->LogTail(20), "\n");
    return nullptr;
  }

  std::unique_ptr<Backend> backend_;
  std::string ready_;
  std::string go_;
};

TEST_P(StoreConformanceTest, StandbyPeeksAtNewestState) {
  auto standby = Open();
  EXPECT_FALSE(standby->Peek().ok() && standby->Peek()->has_value()) << "there is none";
  auto leader = Open();
  ASSERT_TRUE(leader->Campaign(In(kLong)).ok());
  ASSERT_TRUE(leader->Load().ok());
  const auto none = standby->Peek();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  // More than one chunk.
  const std::string large(3000000, 'x');
  uint64_t revision = 0;
  for (const std::string& state : {std::string("one"), std::string(), large}) {
    ++revision;
    ASSERT_TRUE(leader->Save(revision, state).ok());
    EXPECT_EQ(standby->Campaign(In(kShort)).code(), absl::StatusCode::kDeadlineExceeded);
    const auto newest = standby->Peek();
    ASSERT_TRUE(newest.ok() && newest->has_value()) << newest.status();
    EXPECT_EQ((*newest)->revision, revision);
    EXPECT_EQ((*newest)->state, state);
  }
  EXPECT_FALSE(standby->IsLeader());
  EXPECT_TRUE(leader->Save(4000000, "still the leader").ok());
}

TEST_P(StoreConformanceTest, EmptyStoreHasNoState) {
  const auto store = Open();
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  for (int i = 0; i < 2; ++i) {
    const auto loaded = store->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_FALSE(loaded->has_value());
  }
}

TEST_P(StoreConformanceTest, NextLeaderLoadsNewestState) {
  const std::string bytes("\0binary\xff\n", 9);
  {
    const auto store = Lead();
    EXPECT_TRUE(store->Save(1, "one").ok());
    EXPECT_TRUE(store->Save(2, "two").ok());
    EXPECT_TRUE(store->Save(7, bytes).ok());
  }
  const StoredState state = LoadAsNextLeader();
  EXPECT_EQ(state.revision, 7);
  EXPECT_EQ(state.state, bytes);
}

TEST_P(StoreConformanceTest, StatesOfAllSizesAreLoaded) {
  uint64_t revision = 0;
  for (const size_t size :
       {size_t{0}, size_t{1}, kEtcdChunkBytes - 1, kEtcdChunkBytes, kEtcdChunkBytes + 1,
        3 * kEtcdChunkBytes + 5, kMaxStateBytes, size_t{0}, size_t{10}}) {
    std::string state(size, '\0');
    for (size_t i = 0; i < size; ++i)
      state[i] = static_cast<char>((i * 2654435761u + revision) >> 13);
    {
      const auto store = Lead();
      const absl::Status status = store->Save(++revision, state);
      ASSERT_TRUE(status.ok()) << size << ": " << status;
    }
    const StoredState loaded = LoadAsNextLeader();
    EXPECT_EQ(loaded.revision, revision);
    EXPECT_TRUE(loaded.state == state) << size << " bytes came back as " << loaded.state.size();
  }
}

TEST_P(StoreConformanceTest, TooLargeStateIsRefused) {
  {
    const auto store = Lead();
    EXPECT_TRUE(store->Save(1, "one").ok());
    const absl::Status status = store->Save(2, std::string(kMaxStateBytes + 1, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(store->Save(0, "zero").code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(store->IsLeader());
  }
  EXPECT_EQ(LoadAsNextLeader().state, "one");
}

TEST_P(StoreConformanceTest, OldRevisionIsRefused) {
  {
    const auto store = Lead();
    EXPECT_TRUE(store->Save(5, "five").ok());
    EXPECT_EQ(store->Save(4, "four").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store->Save(5, "fifth").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(store->IsLeader());
  }
  {
    const auto store = Lead();
    EXPECT_EQ(store->Save(3, "three").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store->Save(5, "other").code(), absl::StatusCode::kFailedPrecondition);
  }
  const StoredState state = LoadAsNextLeader();
  EXPECT_EQ(state.revision, 5);
  EXPECT_EQ(state.state, "five");
}

TEST_P(StoreConformanceTest, RepeatedSaveIsOk) {
  const auto store = Lead();
  const std::string state(kEtcdChunkBytes + 1, 's');
  EXPECT_TRUE(store->Save(5, state).ok());
  EXPECT_TRUE(store->Save(5, state).ok());
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_TRUE((*loaded)->state == state);
  EXPECT_TRUE(store->Save(6, "six").ok());
}

TEST_P(StoreConformanceTest, OnlyLeaderLoadsAndSaves) {
  const auto leader = Lead();
  ASSERT_TRUE(leader->Save(1, "one").ok());
  const auto other = Open();
  EXPECT_FALSE(other->IsLeader());
  EXPECT_EQ(other->Load().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(other->Save(2, "two").code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*leader->Load())->state, "one");
}

TEST_P(StoreConformanceTest, SaveBeforeLoadIsRefused) {
  const auto store = Open();
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  EXPECT_EQ(store->Save(1, "one").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(store->Load().ok());
  EXPECT_TRUE(store->Save(1, "one").ok());
}

TEST_P(StoreConformanceTest, StandbyWaitsUntilLeaderLeaves) {
  // A leader that leaves revokes its lease.
  auto leader = Lead(kLongLease);
  EXPECT_TRUE(leader->Campaign(In(kShort)).ok());
  ASSERT_TRUE(leader->Save(1, "one").ok());
  const auto standby = Open(kLongLease);
  const absl::Status status = standby->Campaign(In(kShort));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_FALSE(standby->IsLeader());

  std::thread leaving([&] {
    std::this_thread::sleep_for(kShort);
    leader.reset();
  });
  EXPECT_TRUE(standby->Campaign(In(kLong)).ok());
  leaving.join();
  const auto loaded = standby->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->state, "one");
  EXPECT_TRUE(standby->Save(2, "two").ok());
}

TEST_P(StoreConformanceTest, StandbyTakesOverFromKilledLeader) {
  const auto holder = StartHolder(41, "of the killed");
  ASSERT_NE(holder, nullptr);
  const auto standby = Open();
  EXPECT_EQ(standby->Campaign(In(kShort)).code(), absl::StatusCode::kDeadlineExceeded);
  holder->Signal(SIGKILL);
  EXPECT_TRUE(standby->Campaign(In(kLong)).ok());
  const auto loaded = standby->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->revision, 41);
  EXPECT_EQ((*loaded)->state, "of the killed");
  EXPECT_TRUE(standby->Save(42, "of the standby").ok());
}

TEST_P(StoreConformanceTest, OvertakenLeaderCannotSaveAndIsToldOnce) {
  const auto old = Open();
  std::atomic<int> lost{0};
  old->SetLeadershipLostCallback([&](const absl::Status& why) {
    EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
    ++lost;
  });
  ASSERT_TRUE(old->Campaign(In(kLong)).ok());
  ASSERT_TRUE(old->Load().ok());
  ASSERT_TRUE(old->Save(1, "of the old").ok());

  backend_->BreakLeadership();
  {
    const auto next = Lead();
    ASSERT_TRUE(next->Save(2, "of the next").ok());
    EXPECT_TRUE(old->IsLeader()) << "the old leader does not know yet";

    const absl::Status status = old->Save(3, "of the old again");
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_FALSE(old->IsLeader());
    EXPECT_EQ(old->Save(4, "and again").code(), absl::StatusCode::kAborted);
    EXPECT_EQ(old->Load().status().code(), absl::StatusCode::kAborted);
    const auto loaded = next->Load();
    ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
    EXPECT_EQ((*loaded)->state, "of the next");
    EXPECT_EQ(old->Campaign(In(kShort)).code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(lost, 1);
  // It can lead again, from the state that it then loads.
  ASSERT_TRUE(old->Campaign(In(kLong)).ok());
  EXPECT_EQ(old->Save(3, "unseen").code(), absl::StatusCode::kFailedPrecondition);
  const auto loaded = old->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->state, "of the next");
  EXPECT_TRUE(old->Save(3, "led again").ok());
  EXPECT_EQ(lost, 1);
}

// Each leader adds to a number. Two leaders at once, or a lost state, would make the sum too small.
TEST_P(StoreConformanceTest, OneOfManyLeadsAtATime) {
  constexpr int kThreads = 4;
  constexpr int kTerms = 3;
  constexpr int kSaves = 5;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int term = 0; term < kTerms; ++term) {
        const auto store = Open();
        const absl::Status status = store->Campaign(In(kLong));
        ASSERT_TRUE(status.ok()) << status;
        const auto loaded = store->Load();
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        const StoredState state = loaded->value_or(StoredState());
        int sum = 0;
        if (state.revision > 0) {
          ASSERT_TRUE(absl::SimpleAtoi(state.state, &sum));
        }
        for (int i = 1; i <= kSaves; ++i) {
          const absl::Status saved = store->Save(state.revision + i, absl::StrCat(sum + i));
          ASSERT_TRUE(saved.ok()) << saved;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoredState state = LoadAsNextLeader();
  EXPECT_EQ(state.state, absl::StrCat(kThreads * kTerms * kSaves));
  EXPECT_EQ(state.revision, kThreads * kTerms * kSaves);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformanceTest, testing::Values("File", "Etcd"),
                         [](const auto& info) { return info.param; });

// A paused process loses its lease. FileStore's lock survives a pause.
class EtcdPauseTest : public StoreConformanceTest {};

TEST_P(EtcdPauseTest, LeaderPausedBeyondItsLeaseCannotSave) {
  const auto holder = StartHolder(1, "before the pause");
  ASSERT_NE(holder, nullptr);
  holder->Signal(SIGSTOP);
  const auto standby = Lead();
  ASSERT_TRUE(standby->Save(2, "during the pause").ok());
  std::ofstream(go_) << "go";
  holder->Signal(SIGCONT);
  ASSERT_TRUE(holder->WaitUntil(In(kLong)));
  EXPECT_EQ(holder->HowItEnded(), "exited with code 10")
      << absl::StrJoin(holder->LogTail(20), "\n");
  EXPECT_EQ((*standby->Load())->state, "during the pause");
}

INSTANTIATE_TEST_SUITE_P(Stores, EtcdPauseTest, testing::Values("Etcd"));

}  // namespace
}  // namespace pawl
