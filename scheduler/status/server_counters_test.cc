#include "scheduler/status/server_counters.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

using google::protobuf::FieldDescriptor;

// Every field has the value.
ServerCounters AllAt(int value) {
  ServerCounters counters;
  for (int i = 0; i < ServerCounters::descriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = ServerCounters::descriptor()->field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      auto& histogram = static_cast<StalenessHistogram&>(
          *counters.GetReflection()->MutableMessage(&counters, field));
      for (int bound = 0; bound < 3; ++bound) histogram.add_counts(value);
      histogram.set_sum(value);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      counters.GetReflection()->SetDouble(&counters, field, value);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      counters.GetReflection()->SetUInt32(&counters, field, static_cast<uint32_t>(value));
    } else {
      counters.GetReflection()->SetUInt64(&counters, field, value);
    }
  }
  return counters;
}

TEST(ServerCounters, CountersAddAndStepIsTheMaximum) {
  ServerCounters sum = AllAt(3);
  AddCounters(AllAt(5), sum);
  ServerCounters expected = AllAt(8);
  expected.set_step(5);
  expected.set_staleness_max(5);
  EXPECT_EQ(sum.DebugString(), expected.DebugString());
  AddCounters(AllAt(1), sum);
  EXPECT_EQ(sum.step(), 5u);
  EXPECT_EQ(sum.staleness_max(), 5u);
}

}  // namespace
}  // namespace pawl
