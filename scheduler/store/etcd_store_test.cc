// EtcdStore when etcd or its keys fail. store_conformance_test tests the contract of all stores.
#include "scheduler/store/etcd_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "scheduler/store/etcd_client.h"
#include "scheduler/store/testing/etcd_cluster.h"
#include "scheduler/store/testing/silent_listener.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPrefix[] = "pawl/job";
constexpr seconds kLong{30};

MonotonicTime In(MonotonicDuration duration) { return Clock::Real().Now() + duration; }

std::string NewFolder() {
  std::string name = absl::StrCat(testing::TempDir(), "/etcd-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make " << name;
  return name;
}

class EtcdStoreTest : public testing::Test {
 protected:
  void StartCluster(int members = 1, std::vector<std::string> flags = {}) {
    auto started =
        EtcdCluster::Start({.members = members, .folder = NewFolder(), .flags = std::move(flags)});
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = *std::move(started);
    client_ = std::make_unique<EtcdClient>(EtcdClientOptions{
        .endpoints = cluster_->endpoints(), .attempt_timeout = milliseconds(5000)});
  }

  std::unique_ptr<EtcdStore> Open() { return Open(cluster_->endpoints()); }
  std::unique_ptr<EtcdStore> Open(std::vector<std::string> endpoints) {
    return std::make_unique<EtcdStore>(EtcdStoreOptions{
        .endpoints = std::move(endpoints), .prefix = kPrefix, .lease_ttl = seconds(2)});
  }

  std::unique_ptr<EtcdStore> Lead() {
    auto store = Open();
    absl::Status status = store->Campaign(In(kLong));
    EXPECT_TRUE(status.ok()) << status;
    const auto loaded = store->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return store;
  }

  // Reads the keys from `begin`, before `end`; only `begin` if `end` is empty.
  etcdserverpb::RangeResponse Range(const std::string& begin, const std::string& end = "") {
    etcdserverpb::RangeRequest request;
    request.set_key(begin);
    request.set_range_end(end);
    const auto response = client_->Range(request, In(kLong));
    EXPECT_TRUE(response.ok()) << response.status();
    return *response;
  }
  void Apply(etcdserverpb::RequestOp op) {
    etcdserverpb::TxnRequest request;
    *request.add_success() = std::move(op);
    const auto response = client_->Txn(request, In(kLong));
    EXPECT_TRUE(response.ok()) << response.status();
  }

  // The sorted names below the prefix.
  std::vector<std::string> Keys() {
    const std::string begin = FullKey("");
    std::vector<std::string> keys;
    const etcdserverpb::RangeResponse range = Range(begin, absl::StrCat(kPrefix, "0"));
    for (const etcdserverpb::KeyValue& pair : range.kvs())
      keys.push_back(pair.key().substr(begin.size()));
    return keys;
  }
  std::string Get(const std::string& name) { return Range(FullKey(name)).kvs(0).value(); }
  void Put(const std::string& name, const std::string& value) {
    etcdserverpb::RequestOp op;
    op.mutable_request_put()->set_key(FullKey(name));
    op.mutable_request_put()->set_value(value);
    Apply(std::move(op));
  }
  void Delete(const std::string& name) {
    etcdserverpb::RequestOp op;
    op.mutable_request_delete_range()->set_key(FullKey(name));
    Apply(std::move(op));
  }
  static std::string FullKey(const std::string& name) { return absl::StrCat(kPrefix, "/", name); }

  std::unique_ptr<EtcdCluster> cluster_;
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdStoreTest, TlsNeedsCertificateThatEtcdAccepts) {
  const std::string certificates = TestCertificatesFolder("certificates");
  const std::string others = TestCertificatesFolder("others");
  ASSERT_TRUE(
      MakeTestCertificates(certificates, "etcd", {"--roles=server,scheduler", "--hosts=127.0.0.1"})
          .ok());
  ASSERT_TRUE(MakeTestCertificates(others, "etcd", {"--roles=scheduler"}).ok());
  auto started = EtcdCluster::Start({.folder = NewFolder(), .tls_dir = certificates + "/server"});
  ASSERT_TRUE(started.ok()) << started.status();
  const auto open = [&](const std::string& tls_dir) {
    return EtcdStore({.endpoints = (*started)->endpoints(), .tls_dir = tls_dir, .prefix = kPrefix});
  };
  EtcdStore store = open(certificates + "/scheduler");
  const absl::Status leads = store.Campaign(In(kLong));
  ASSERT_TRUE(leads.ok()) << leads;
  ASSERT_TRUE(store.Load().ok());
  const absl::Status saved = store.Save(1, "state");
  ASSERT_TRUE(saved.ok()) << saved;
  for (const std::string& tls_dir :
       {std::string(), others + "/scheduler", certificates + "/none"}) {
    EtcdStore stranger = open(tls_dir);
    EXPECT_EQ(stranger.Campaign(In(seconds(1))).code(), absl::StatusCode::kUnavailable) << tls_dir;
  }
}

TEST_F(EtcdStoreTest, SaveRemovesOlderKeys) {
  StartCluster();
  auto store = Lead();
  ASSERT_TRUE(store->Save(1, std::string(3 * kEtcdChunkBytes, 'x')).ok());
  EXPECT_EQ(Keys().size(), 5u);
  ASSERT_TRUE(store->Save(2, "small").ok());
  // Folder numbers with one digit and with two.
  for (int i = 0; i < 12; ++i)
    ASSERT_TRUE(store->Save(3 + i, std::string(i % 2 * kEtcdChunkBytes + 1, 'x')).ok());
  ASSERT_TRUE(store->Save(20, "small").ok());
  const std::vector<std::string> keys = Keys();
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0], "leader");
  EXPECT_EQ(keys[1], "newest");
  EXPECT_TRUE(absl::StartsWith(keys[2], "state/"));
  EXPECT_EQ(Get(keys[2]), "small");
  EXPECT_TRUE(absl::StrContains(Get("leader"), absl::StrCat("pid ", getpid())));
  store.reset();
  EXPECT_EQ(Keys().size(), 2u) << "a leader that leaves deletes the key 'leader'";
}

TEST_F(EtcdStoreTest, DamagedKeyIsNamed) {
  StartCluster();
  auto store = Lead();
  ASSERT_TRUE(store->Save(1, std::string(kEtcdChunkBytes + 1, 'x')).ok());
  const std::string chunk = Keys()[2];
  const std::string second_chunk = Keys()[3];
  const std::string newest = Get("newest");
  const auto expect_data_loss = [&](const std::string& what) {
    const auto loaded = store->Load();
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss) << loaded.status();
    EXPECT_TRUE(absl::StrContains(loaded.status().message(), absl::StrCat(kPrefix, "/", what)))
        << loaded.status();
    EXPECT_TRUE(store->IsLeader());
  };
  Put(second_chunk, "y");
  expect_data_loss(chunk.substr(0, chunk.rfind('/')));
  Put(second_chunk, "xx");
  expect_data_loss(chunk.substr(0, chunk.rfind('/')));
  Delete(second_chunk);
  expect_data_loss(second_chunk);
  Put(second_chunk, "x");
  EXPECT_TRUE(store->Load().ok());
  for (const std::string& text :
       {std::string("nonsense"), newest.substr(1), newest + " more", std::string()}) {
    Put("newest", text);
    expect_data_loss("newest");
  }
  Put("newest", newest);
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->state, std::string(kEtcdChunkBytes + 1, 'x'));
}

TEST_F(EtcdStoreTest, LeadershipEndsWithLeaseWhileEtcdIsSilent) {
  StartCluster();
  auto store = Open();
  std::atomic<int> lost{0};
  store->SetLeadershipLostCallback([&](const absl::Status&) { ++lost; });
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  ASSERT_TRUE(store->Load().ok());
  ASSERT_TRUE(store->Save(1, "one").ok());
  cluster_->member(0).Signal(SIGSTOP);
  const MonotonicTime started = Clock::Real().Now();
  const absl::Status status = store->Save(2, "two");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_LT(Seconds(Clock::Real().Now() - started), 9);
  EXPECT_TRUE(Eventually([&] { return !store->IsLeader(); }));
  EXPECT_EQ(store->Save(2, "two").code(), absl::StatusCode::kAborted);
  const absl::Status campaign = store->Campaign(In(milliseconds(600)));
  EXPECT_EQ(campaign.code(), absl::StatusCode::kUnavailable) << campaign;
  EXPECT_EQ(lost, 1);
  cluster_->member(0).Signal(SIGCONT);
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  // The failed Save may have been executed.
  EXPECT_TRUE((*loaded)->state == "one" || (*loaded)->state == "two");
  EXPECT_TRUE(store->Save(3, "three").ok());
  EXPECT_EQ(lost, 1);
}

TEST_F(EtcdStoreTest, LeaseIsRenewed) {
  StartCluster();
  auto store = Lead();
  const auto other = Open();
  const absl::Status status = other->Campaign(In(seconds(7)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("pid ", getpid()))) << status;
  EXPECT_TRUE(store->IsLeader());
  EXPECT_TRUE(store->Save(1, "one").ok());
}

TEST_F(EtcdStoreTest, DeadEndpointsAreSkipped) {
  StartCluster();
  const SilentListener silent;
  const std::string good = cluster_->endpoints()[0];
  // Port 1 refuses connections.
  for (const std::vector<std::string>& endpoints : {std::vector<std::string>{"127.0.0.1:1", good},
                                                    {silent.endpoint(), good},
                                                    {good, silent.endpoint()}}) {
    auto store = Open(endpoints);
    absl::Status status = store->Campaign(In(kLong));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(store->Load().ok());
    EXPECT_TRUE(store->Campaign(In(kLong)).ok());
  }
}

TEST_F(EtcdStoreTest, ErrorNamesEveryDeadEndpoint) {
  const SilentListener silent;
  auto store = Open({"127.0.0.1:1", silent.endpoint()});
  const absl::Status status = store->Campaign(In(seconds(2)));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "127.0.0.1:1: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), silent.endpoint())) << status;
}

TEST_F(EtcdStoreTest, FullEtcdIsAnErrorAndKeepsTheState) {
  StartCluster(1, {"--quota-backend-bytes=8388608"});
  auto store = Lead();
  absl::Status status;
  uint64_t saved = 0;
  while (saved < 100) {
    status =
        store->Save(saved + 1, absl::StrCat(saved + 1, std::string(kEtcdChunkBytes - 10, 'x')));
    if (!status.ok()) break;
    ++saved;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(saved, 0u);
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  // Etcd checks its quota before it proposes a transaction and again when it applies it. The second
  // time it applies the transaction and still returns the error.
  EXPECT_GE((*loaded)->revision, saved);
  EXPECT_LE((*loaded)->revision, saved + 1);
  EXPECT_TRUE(absl::StartsWith((*loaded)->state, absl::StrCat((*loaded)->revision, "x")));
}

TEST_F(EtcdStoreTest, OneOfThreeMembersMayDie) {
  StartCluster(3);
  auto store = Lead();
  ASSERT_TRUE(store->Save(1, "one").ok());
  cluster_->member(0).Signal(SIGKILL);
  // While etcd elects a leader, calls may fail, and the leadership may be lost and won again. Then
  // the same Save is repeated.
  const auto save = [&](uint64_t revision, const std::string& state) {
    absl::Status status;
    const MonotonicTime deadline = In(kLong);
    do {
      status = store->Save(revision, state);
      if (absl::IsAborted(status) && store->Campaign(In(kLong)).ok()) store->Load().IgnoreError();
    } while (!status.ok() && Clock::Real().Now() < deadline);
    EXPECT_TRUE(status.ok()) << status;
  };
  save(2, "two");
  save(3, "three");
  store.reset();
  store = Open({cluster_->endpoints()[2], cluster_->endpoints()[1]});
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->state, "three");
}

}  // namespace
}  // namespace pawl
