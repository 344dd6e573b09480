#include "client_lib/job/field_layout.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Data ColumnsNamed(const std::vector<std::string>& names) {
  Data data;
  data.set_format(CSV);
  data.mutable_csv()->add_columns()->set_name("y");
  data.mutable_csv()->mutable_columns(0)->mutable_label();
  for (const std::string& name : names) {
    Column* const column = data.mutable_csv()->add_columns();
    column->set_name(name);
    column->mutable_categorical();
    if (name == "clicked" || name == "bought") column->mutable_list()->set_separator("|");
    if (name == "clicked" || name == "bought" || name == "item") column->set_domain("item");
  }
  return data;
}

absl::StatusOr<FieldLayout> LayoutOf(const std::string& model_text) {
  Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model_text, &model)) << model_text;
  return FieldLayoutOf(ColumnsNamed({"user", "item", "clicked", "bought", "hour"}), model, 5);
}

TEST(FieldLayoutTest, WithoutFeaturesAllFieldsShareOneTable) {
  const FieldLayout layout = LayoutOf("fm { dim: 4 }").value();
  ASSERT_EQ(layout.key_sets.size(), 1u);
  EXPECT_EQ(layout.key_sets[0].name, "embedding");
  EXPECT_TRUE(layout.is_single());
  EXPECT_THAT(layout.field_sets[0].fields, ElementsAre(0, 1, 2, 3, 4));
}

TEST(FieldLayoutTest, FeaturesHaveTablesOfTheirOwn) {
  const FieldLayout layout =
      LayoutOf(
          "wide_deep { dim: 4 } features { table: 'item' columns: ['item', 'clicked'] dim: 8 "
          "optimizer { sgd { learning_rate: 1 } } }")
          .value();
  ASSERT_EQ(layout.key_sets.size(), 2u);
  EXPECT_EQ(layout.key_sets[0].name, "embedding");
  EXPECT_EQ(layout.key_sets[1].name, "embedding/item");
  EXPECT_EQ(layout.key_sets[1].dim, 8u);
  EXPECT_TRUE(layout.key_sets[1].optimizer->has_sgd());
  ASSERT_EQ(layout.field_sets.size(), 2u);
  EXPECT_THAT(layout.field_sets[0].fields, ElementsAre(0, 3, 4));
  EXPECT_THAT(layout.field_sets[1].fields, ElementsAre(1, 2));
  const FieldLayout::Place place = layout.PlaceOf(2);
  EXPECT_EQ(place.field_set, 1u);
  EXPECT_EQ(place.index, 1u);
}

TEST(FieldLayoutTest, PoolingsOfATableAreSetsOfTheirOwn) {
  const FieldLayout layout = LayoutOf(
                                 "wide_deep { dim: 4 } "
                                 "features { table: 'a' columns: ['user', 'item', 'hour'] } "
                                 "features { table: 'a' columns: 'clicked' pooling: MEAN } "
                                 "features { table: 'b' columns: 'bought' pooling: MAX }")
                                 .value();
  ASSERT_EQ(layout.key_sets.size(), 2u);
  EXPECT_EQ(layout.key_sets[0].name, "embedding/a") << "no field is left for \"embedding\"";
  ASSERT_EQ(layout.field_sets.size(), 3u);
  EXPECT_THAT(layout.field_sets[0].fields, ElementsAre(0, 1, 4));
  EXPECT_EQ(layout.field_sets[1].pooling, FieldPooling::kMean);
  EXPECT_EQ(layout.field_sets[1].key_set, 0u);
  EXPECT_EQ(layout.field_sets[2].pooling, FieldPooling::kMax);
  EXPECT_EQ(layout.field_sets[2].key_set, 1u);
}

TEST(FieldLayoutTest, HistoriesStayApart) {
  const FieldLayout layout =
      LayoutOf(
          "din { dim: 4 attention { history: 'clicked' target: 'item' } "
          "attention { history: 'bought' target: 'item' } } "
          "features { table: 'item' columns: ['item', 'clicked', 'bought'] }")
          .value();
  ASSERT_EQ(layout.field_sets.size(), 4u);
  EXPECT_THAT(layout.field_sets[1].fields, ElementsAre(1));
  EXPECT_EQ(layout.field_sets[2].pooling, FieldPooling::kNone);
  EXPECT_THAT(layout.field_sets[2].fields, ElementsAre(2));
  EXPECT_THAT(layout.field_sets[3].fields, ElementsAre(3));
  ASSERT_EQ(layout.attentions.size(), 2u);
  EXPECT_EQ(layout.attentions[1].history.field_set, 3u);
  EXPECT_EQ(layout.attentions[1].target.field_set, 1u);
}

TEST(FieldLayoutTest, MistakesAreNamed) {
  const auto refused = [](const std::string& model, const std::string& message) {
    const absl::StatusOr<FieldLayout> layout = LayoutOf(model);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << model;
    EXPECT_THAT(std::string(layout.status().message()), HasSubstr(message));
  };
  refused("features { columns: 'item' }", "model.features[0].table is \"\"");
  refused("features { table: 'a/b' columns: 'item' }", "model.features[0].table is \"a/b\"");
  refused("features { table: 'a' }", "model.features[0].columns is empty");
  refused("features { table: 'a' columns: 'shop' }", "model.features[0].columns[0] is \"shop\"");
  refused("features { table: 'a' columns: 'y' }", "not categorical");
  refused("features { table: 'a' columns: ['item', 'item'] }", "model.features[0] has too");
  refused("features { table: 'a' columns: 'item' dim: 5000 }", "model.features[0].dim is 5000");
  refused("features { table: 'a' columns: 'item' init_stddev: -1 }", "init_stddev is -1");
  refused("features { table: 'a' columns: 'item' dim: 4 } features { table: 'a' columns: 'user' }",
          "another dim");
  refused("din { attention { history: 'items' target: 'item' } }",
          "model.din.attention[0].history");
  refused("din { attention { history: 'clicked' target: 'clicked' } }", "is a history itself");
  refused("din { attention { history: 'clicked' target: 'user' } }", "the same domain");
  refused("din { attention { history: 'user' target: 'item' } }", "\"user\" must be a list");
  refused("din { attention { history: 'clicked' target: 'bought' } }", "\"bought\", to which");
  refused(
      "din { attention { history: 'clicked' target: 'item' } } "
      "features { table: 'a' columns: ['item', 'clicked'] pooling: MEAN }",
      "model.features[0].pooling is MEAN");
  refused(
      "din { attention { history: 'clicked' target: 'item' } } "
      "features { table: 'a' columns: 'item' }",
      "have different tables");
  refused(
      "din { attention { history: 'clicked' target: 'item' } "
      "attention { history: 'clicked' target: 'user' } }",
      "as in an earlier entry");
}

}  // namespace
}  // namespace pawl
