// layouts.inl: what the rows of WEIGHT_LAYOUTS (kernels.h) mean here: those of OWN_LAYOUTS, which are this piece's.

namespace {

// A layout's bytes are those that its row names, in the file and packed.
#define CHECK(name, columns_, nbytes, panel, pack)                                                             \
    static_assert(panel::Bytes::columns == columns_ && panel::Bytes::File::end == nbytes, #name " in the file"); \
    static_assert(panel::Bytes::end == PANEL * nbytes && panel::QUANTISED == (columns_ > 1), #name " as it is packed");
OWN_LAYOUTS(CHECK)
#undef CHECK

constexpr WeightTable own_weights() {
    WeightTable own{};
#define ROW(name, columns, nbytes, panel, pack) own.of[LAYOUT_##name] = {&PASSES<panel, false>, &PASSES<panel, panel::QUANTISED>, pack, read_row<panel>};
    OWN_LAYOUTS(ROW)
#undef ROW
    return own;
}

}  // namespace
