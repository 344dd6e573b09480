#include "scheduler/store/open_store.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

TEST(OpenStoreTest, FolderOpensFileStore) {
  for (const char* place :
       {"/tmp/some/folder", "folder", "file:/tmp/some/folder", "file:folder", "a,b:c", "C:/x"}) {
    const auto store = OpenStore(place);
    ASSERT_TRUE(store.ok()) << place << ": " << store.status();
    EXPECT_TRUE(absl::EndsWith(absl::StrCat("file:", place), (*store)->Describe().substr(5)))
        << (*store)->Describe();
    EXPECT_TRUE(absl::StartsWith((*store)->Describe(), "file:"));
  }
}

TEST(OpenStoreTest, EndpointsAndPrefixOpenEtcdStore) {
  for (const char* place : {"etcd://127.0.0.1:2379/pawl",
                            "etcd://a.example:2379,b-c.example:1,[::1]:65535/pawl/job_1.x"}) {
    const auto store = OpenStore(place, {.etcd_tls_dir = "", .insecure = true});
    ASSERT_TRUE(store.ok()) << place << ": " << store.status();
    EXPECT_EQ((*store)->Describe(), place);
    EXPECT_FALSE((*store)->IsLeader());
  }
}

TEST(OpenStoreTest, EtcdOnAnotherMachineNeedsTls) {
  const auto plain = OpenStore("etcd://127.0.0.1:2379,10.0.0.1:2379/pawl");
  EXPECT_EQ(plain.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(plain.status().message(), "10.0.0.1:2379")) << plain.status();
  EXPECT_TRUE(absl::StrContains(plain.status().message(), "--etcd_tls_dir")) << plain.status();
  const auto missing = OpenStore("etcd://10.0.0.1:2379/pawl", {.etcd_tls_dir = "/nonexistent"});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(missing.status().message(), "/nonexistent/ca.pem"))
      << missing.status();
}

TEST(OpenStoreTest, ErrorNamesWrongPart) {
  const struct {
    std::string place;
    std::string quoted;
  } cases[] = {
      {"", "empty"},
      {"file:", "empty"},
      {"http://127.0.0.1:2379/pawl", "'http://'"},
      {"file:///tmp/x", "'file://'"},
      {"etcds://127.0.0.1:2379/pawl", "'etcds://'"},
      {"etcd://", "'' is not host:port"},
      {"etcd:///pawl", "'' is not host:port"},
      {"etcd://host/pawl", "'host'"},
      {"etcd://:2379/pawl", "':2379'"},
      {"etcd://host:2379,/pawl", "'' is not host:port"},
      {"etcd://host:0/pawl", "'host:0'"},
      {"etcd://host:65536/pawl", "'host:65536'"},
      {"etcd://host:x/pawl", "'host:x'"},
      {"etcd://ho st:1/pawl", "'ho st:1'"},
      {"etcd://user@host:1/pawl", "'@'"},
      {"etcd://::1:2379/pawl", "'::1:2379'"},
      {"etcd://host:2379", "the prefix ''"},
      {"etcd://host:2379/", "the prefix ''"},
      {"etcd://host:2379//pawl", "the prefix '/pawl'"},
      {"etcd://host:2379/pawl/", "the prefix 'pawl/'"},
      {"etcd://host:2379/a//b", "the prefix 'a//b'"},
      {"etcd://host:2379/a?b", "the prefix 'a?b'"},
      {"etcd://host:2379/" + std::string(257, 'p'), "1 to 256"},
      {"etcd://a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1/p", "10 endpoints"},
  };
  for (const auto& [place, quoted] : cases) {
    const auto store = OpenStore(place);
    EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument) << place;
    EXPECT_TRUE(absl::StrContains(store.status().message(), quoted))
        << store.status() << " lacks " << quoted;
    EXPECT_TRUE(absl::StrContains(store.status().message(), "etcd://HOST:PORT")) << store.status();
  }
}

}  // namespace
}  // namespace pawl
