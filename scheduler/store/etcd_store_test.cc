// What EtcdStore does when etcd or its keys fail. What all stores promise: store_conformance_test.
#include "scheduler/store/etcd_store.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "scheduler/store/etcd_client.h"
#include "scheduler/store/etcd_cluster.h"

namespace pawl {
namespace {

using nlohmann::json;
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

// Takes connections and never answers.
class SilentListener {
 public:
  SilentListener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
  }
  ~SilentListener() { close(socket_); }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port)); }

 private:
  const int socket_;
  sockaddr_in address_{};
};

class EtcdStoreTest : public testing::Test {
 protected:
  void StartCluster(int members = 1, std::vector<std::string> flags = {}) {
    auto started = EtcdCluster::Start({members, NewFolder(), std::move(flags)});
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = *std::move(started);
    client_ = std::make_unique<EtcdClient>(cluster_->endpoints(), milliseconds(5000));
  }

  std::unique_ptr<EtcdStore> Open() { return Open(cluster_->endpoints()); }
  std::unique_ptr<EtcdStore> Open(std::vector<std::string> endpoints) {
    return std::make_unique<EtcdStore>(EtcdStoreOptions{std::move(endpoints), kPrefix, seconds(2)});
  }

  std::unique_ptr<EtcdStore> Lead() {
    auto store = Open();
    absl::Status status = store->Campaign(In(kLong));
    EXPECT_TRUE(status.ok()) << status;
    const auto loaded = store->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return store;
  }

  // Names below the prefix, in order.
  std::vector<std::string> Keys() {
    const std::string begin = absl::StrCat(kPrefix, "/");
    const auto answer = client_->Call("/v3/kv/range",
                                      {{"key", EtcdBytes(begin)},
                                       {"range_end", EtcdBytes(absl::StrCat(kPrefix, "0"))},
                                       {"keys_only", true}},
                                      In(kLong));
    EXPECT_TRUE(answer.ok()) << answer.status();
    std::vector<std::string> keys;
    for (const json& pair : answer->value("kvs", json::array())) {
      keys.push_back(EtcdBytesAt(pair, "key")->substr(begin.size()));
    }
    return keys;
  }

  std::string Get(const std::string& name) {
    const auto answer = client_->Call(
        "/v3/kv/range", {{"key", EtcdBytes(absl::StrCat(kPrefix, "/", name))}}, In(kLong));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return *EtcdBytesAt((*answer)["kvs"][0], "value");
  }
  void Put(const std::string& name, const std::string& value) {
    const auto answer = client_->Call(
        "/v3/kv/put",
        {{"key", EtcdBytes(absl::StrCat(kPrefix, "/", name))}, {"value", EtcdBytes(value)}},
        In(kLong));
    EXPECT_TRUE(answer.ok()) << answer.status();
  }
  void Delete(const std::string& name) {
    const auto answer = client_->Call(
        "/v3/kv/deleterange", {{"key", EtcdBytes(absl::StrCat(kPrefix, "/", name))}}, In(kLong));
    EXPECT_TRUE(answer.ok()) << answer.status();
  }

  std::unique_ptr<EtcdCluster> cluster_;
  std::unique_ptr<EtcdClient> client_;
};

TEST_F(EtcdStoreTest, OnlyTheNewestStatesKeysStay) {
  StartCluster();
  auto store = Lead();
  ASSERT_TRUE(store->Save(1, std::string(3 * kEtcdChunkBytes, 'x')).ok());
  EXPECT_EQ(Keys().size(), 5u);
  ASSERT_TRUE(store->Save(2, "small").ok());
  // Folders numbered with one digit and with two.
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
  EXPECT_EQ(Keys().size(), 2u) << "who leaves takes the key 'leader' along";
}

TEST_F(EtcdStoreTest, DamagedKeysAreRefusedByName) {
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

TEST_F(EtcdStoreTest, WithoutEtcdALeaderIsOneOnlyForItsLeaseAndCallsEnd) {
  StartCluster();
  auto store = Open();
  std::atomic<int> lost{0};
  store->WhenLeadershipLost([&](const absl::Status&) { ++lost; });
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  ASSERT_TRUE(store->Load().ok());
  ASSERT_TRUE(store->Save(1, "one").ok());
  cluster_->member(0).Signal(SIGSTOP);
  const MonotonicTime begun = Clock::Real().Now();
  const absl::Status status = store->Save(2, "two");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_LT(Seconds(Clock::Real().Now() - begun), 9);
  EXPECT_TRUE(Eventually([&] { return !store->IsLeader(); }));
  EXPECT_EQ(store->Save(2, "two").code(), absl::StatusCode::kAborted);
  const absl::Status campaign = store->Campaign(In(milliseconds(600)));
  EXPECT_EQ(campaign.code(), absl::StatusCode::kUnavailable) << campaign;
  EXPECT_EQ(lost, 1);
  cluster_->member(0).Signal(SIGCONT);
  ASSERT_TRUE(store->Campaign(In(kLong)).ok());
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  // The Save that failed may have been done.
  EXPECT_TRUE((*loaded)->state == "one" || (*loaded)->state == "two");
  EXPECT_TRUE(store->Save(3, "three").ok());
  EXPECT_EQ(lost, 1);
}

TEST_F(EtcdStoreTest, ALeaderStaysOneForManyLeases) {
  StartCluster();
  auto store = Lead();
  const auto other = Open();
  const absl::Status status = other->Campaign(In(seconds(7)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("pid ", getpid()))) << status;
  EXPECT_TRUE(store->IsLeader());
  EXPECT_TRUE(store->Save(1, "one").ok());
}

TEST_F(EtcdStoreTest, EndpointsThatDoNotAnswerArePassedOver) {
  StartCluster();
  const SilentListener silent;
  const std::string good = cluster_->endpoints()[0];
  // Port 1 refuses.
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

TEST_F(EtcdStoreTest, WhereNobodyAnswersTheMessageNamesEveryEndpoint) {
  const SilentListener silent;
  auto store = Open({"127.0.0.1:1", silent.endpoint()});
  const absl::Status status = store->Campaign(In(seconds(2)));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "127.0.0.1:1: ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), silent.endpoint())) << status;
}

TEST_F(EtcdStoreTest, AFullEtcdIsATypedErrorAndTheStateBeforeStays) {
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
  EXPECT_EQ((*loaded)->revision, saved);
}

TEST_F(EtcdStoreTest, OneOfThreeMembersMayDie) {
  StartCluster(3);
  auto store = Lead();
  ASSERT_TRUE(store->Save(1, "one").ok());
  cluster_->member(0).Signal(SIGKILL);
  // While etcd elects, calls may fail, and the leadership may be lost and won again; the same Save
  // is repeated.
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
