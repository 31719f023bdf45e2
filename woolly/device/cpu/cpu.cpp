#include "cpu.h"

#include "error.h"
#include "processor.h"

namespace woolly {

namespace {

constexpr const Set* COMPILED[] = {
#define SET(name) &set_##name,
#include "compiled_sets.inc"
#undef SET
};

const Set* compiled(std::string_view name) {
    for (const Set* set : COMPILED)
        if (set->name == name) return set;
    return nullptr;
}

}  // namespace

std::vector<std::string_view> sets_of_machine() {
    const auto names = runnable_sets();
    std::vector<std::string_view> here(names.begin(), names.end());
    if (EMULATED && here.size() > 1) here = {"scalar", "avx512", "avx2"};      // the second by AVX2, and slower than its own set
    return here;
}

std::vector<const Set*> available_sets() {
    std::vector<const Set*> sets;
    for (const std::string_view name : sets_of_machine())
        if (const Set* set = compiled(name)) sets.push_back(set);
    return sets;
}

const Set& set_by_name(const std::string& name) {
    static const std::vector<const Set*> sets = available_sets();   // asked for every token: nothing is allocated
    std::string known;
    for (const Set* set : sets) {
        if (set->name == name) return *set;
        known += known.empty() ? set->name : std::string(", ") + set->name;
    }
    throw Error("unsupported", "this machine has no instruction set '" + name + "'; it has " + known);
}

std::vector<const Kernel*> kernels_of(const Set& set) {
    std::vector<const Kernel*> kernels;
    for (const KernelTable* table : set.tables)
        for (int i = 0; i < table->count; i++) kernels.push_back(table->first + i);
    return kernels;
}

const Kernel* kernel_of(const Set& set, std::string_view name) {
    for (const KernelTable* table : set.tables)
        for (int i = 0; i < table->count; i++)
            if (table->first[i].name == name) return table->first + i;
    return nullptr;
}

}  // namespace woolly
