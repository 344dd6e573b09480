#include "scheduler/job/table_catalogue.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "proto/server_control.pb.h"

namespace pawl {
namespace {

Job JobWithOptimizers() {
  Job job;
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1f);
  job.mutable_sparse_optimizer()->mutable_adagrad()->set_learning_rate(0.2f);
  return job;
}

TableSpec Sparse(const std::string& name) { return SparseTableSpec(name, 8); }

TEST(TableCatalogueTest, NewTablesGetAnIdAndTheJobsOptimizer) {
  TableCatalogue tables(JobWithOptimizers());
  const auto sparse = tables.Create(Sparse("embedding"));
  ASSERT_TRUE(sparse.ok()) << sparse.status();
  EXPECT_TRUE(sparse->is_new);
  EXPECT_EQ(sparse->entry->spec.id(), 1u);
  EXPECT_EQ(sparse->entry->spec.element_type(), FLOAT32);
  EXPECT_TRUE(sparse->entry->spec.optimizer().has_adagrad());
  EXPECT_FALSE(sparse->entry->ready);

  const auto created = tables.Create(DenseTableSpec("weights", {10}));
  EXPECT_EQ(created->entry->spec.id(), 2u);
  EXPECT_TRUE(created->entry->spec.optimizer().has_sgd());
  EXPECT_EQ(tables.All().size(), 2u);
}

TEST(TableCatalogueTest, EqualTableIsTheSameTable) {
  TableCatalogue tables(JobWithOptimizers());
  ASSERT_TRUE(tables.Create(Sparse("embedding")).ok());
  TableSpec again = Sparse("embedding");
  again.set_id(77);
  again.set_element_type(FLOAT32);
  const auto created = tables.Create(again);
  ASSERT_TRUE(created.ok());
  EXPECT_FALSE(created->is_new);
  EXPECT_EQ(created->entry->spec.id(), 1u);
}

TEST(TableCatalogueTest, DifferentTableOfTheSameNameIsRefused) {
  TableCatalogue tables(JobWithOptimizers());
  ASSERT_TRUE(tables.Create(Sparse("embedding")).ok());
  TableSpec other = Sparse("embedding");
  other.set_row_width(9);
  const auto created = tables.Create(other);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(created.status().message().find("row_width: 8 -> 9"), absl::string_view::npos)
      << created.status();
}

TEST(TableCatalogueTest, ImpossibleTableChangesNothing) {
  TableCatalogue tables(Job{});
  EXPECT_EQ(tables.Create(Sparse("embedding")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(tables.All().empty());
}

TEST(TableCatalogueTest, IdOfARefusedTableIsNotReused) {
  TableCatalogue tables(JobWithOptimizers());
  const uint32_t first = tables.Create(Sparse("embedding"))->entry->spec.id();
  tables.Remove(first);
  EXPECT_EQ(tables.Find(first), nullptr);
  const auto second = tables.Create(Sparse("embedding"));
  EXPECT_TRUE(second->is_new);
  EXPECT_GT(second->entry->spec.id(), first);
}

TEST(TableCatalogueTest, TablesAreBounded) {
  TableCatalogue tables(JobWithOptimizers());
  for (size_t i = 0; i < kMaxTables; ++i)
    ASSERT_TRUE(tables.Create(Sparse(absl::StrCat("t", i))).ok());
  EXPECT_EQ(tables.Create(Sparse("more")).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tables.Create(Sparse("t0")).ok());
}

TEST(TableCatalogueTest, AllDigestsFitIntoOneAnswer) {
  Job job = JobWithOptimizers();
  job.set_partitions(65536);
  TableCatalogue tables(job);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(tables.Create(Sparse(absl::StrCat("t", i))).ok()) << i;
  const absl::Status status = tables.Create(Sparse("one_more")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("lower the job's partitions"), absl::string_view::npos) << status;
  EXPECT_TRUE(tables.Create(Sparse("t3")).ok()) << "it exists already";

  PartitionDigest largest;
  largest.set_table(~0u);
  largest.set_partition(job.partitions() - 1);
  largest.set_crc32c(~0u);
  largest.set_rows(~uint64_t{0});
  InspectResponse answer;
  *answer.add_digests() = largest;
  EXPECT_LE(answer.ByteSizeLong(), kMaxDigestBytes);
  // Room for the counters.
  EXPECT_LE(kMaxTableParts * kMaxDigestBytes, uint64_t{15} << 20);
}

}  // namespace
}  // namespace pawl
