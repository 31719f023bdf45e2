// layouts.inl: what the rows of WEIGHT_LAYOUTS (kernels.h) mean here.

namespace {

// A layout's bytes are those that its row names, in the file and packed.
#define CHECK(name, columns_, nbytes, panel, pack)                                                             \
    static_assert(panel::Bytes::columns == columns_ && panel::Bytes::File::end == nbytes, #name " in the file"); \
    static_assert(panel::Bytes::end == PANEL * nbytes && panel::QUANTISED == (columns_ > 1), #name " as it is packed");
WEIGHT_LAYOUTS(CHECK)
#undef CHECK

// Calls the body with the panel type of a layout.
template <class P> struct Type { using Panel = P; };
template <class Body> LANE void with_panel(int32_t layout, const Body& body) {
    switch (layout) {
#define CASE(name, columns, nbytes, panel, pack) \
        case LAYOUT_##name: body(Type<panel>{}); break;
        WEIGHT_LAYOUTS(CASE)
#undef CASE
        default: __builtin_trap();      // the checks at load let no other one through
    }
}

PackPanel packing_of(int32_t layout) {
    switch (layout) {
#define CASE(name, columns, nbytes, panel, pack) \
        case LAYOUT_##name: return pack;
        WEIGHT_LAYOUTS(CASE)
#undef CASE
        default: return nullptr;
    }
}

}  // namespace
