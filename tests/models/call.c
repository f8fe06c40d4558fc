/* A model from C. cc call.c -I out -L out -lhand -Wl,-rpath,out */
#include <stdio.h>
#include <stdlib.h>

#include "hand.h"

static void check(aitc_status status) {
  if (status == AITC_OK) return;
  fprintf(stderr, "error %d: %s\n", status, hand_last_error());
  exit(1);
}

int main(void) {
  if (hand_abi_version() != AITC_ABI_VERSION) return 1;
  const aitc_model* model = hand_model();
  for (int i = 0; i < model->input_count; ++i) printf("input %s, rank %d\n", model->inputs[i].name, model->inputs[i].rank);

  hand_instance* instance;
  check(hand_create(/*device*/ 0, &instance));
  printf("on %s\n", model->device_name(instance));

  float x[3 * 4];
  int64_t ids[1] = {41};
  for (int i = 0; i < 12; ++i) x[i] = (float)i;
  const int64_t x_shape[] = {3, 4}, ids_shape[] = {1};
  const aitc_tensor inputs[hand_INPUT_COUNT] = {{x, x_shape, 2, AITC_F32, AITC_MEMORY_HOST}, {ids, ids_shape, 1, AITC_I64, AITC_MEMORY_HOST}};

  int64_t shapes[5]; /* y: 2, n: 1, x again: 2 */
  check(hand_output_shapes(inputs, shapes));
  float* y = malloc(sizeof(float) * (size_t)(shapes[0] * shapes[1]));
  float* again = malloc(sizeof(float) * (size_t)(shapes[3] * shapes[4]));
  int64_t n[1];
  const aitc_tensor outputs[hand_OUTPUT_COUNT] = {
      {y, shapes, 2, AITC_F32, AITC_MEMORY_HOST}, {n, shapes + 2, 1, AITC_I64, AITC_MEMORY_HOST}, {again, shapes + 3, 2, AITC_F32, AITC_MEMORY_HOST}};
  check(hand_run(instance, inputs, outputs, /*stream*/ NULL));
  printf("y[0] = %.6f, n = %d, again = %g\n", y[0], (int)n[0], again[11]);

  hand_destroy(instance);
  free(y);
  free(again);
  return 0;
}
