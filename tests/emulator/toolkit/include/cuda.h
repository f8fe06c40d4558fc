// The emulator's CUDA driver: tensor maps.
#pragma once
#include "../../tensor_map.h"
