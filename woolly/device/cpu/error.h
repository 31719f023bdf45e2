// error.h: what C++ throws while a program is loaded or a batch is checked; bind.cpp turns it into NativeError.
#pragma once
#include <stdexcept>
#include <string>

namespace woolly {

struct Error : std::runtime_error {
    std::string code;
    Error(std::string code_, const std::string& text) : std::runtime_error(text), code(std::move(code_)) {}
};

}  // namespace woolly
