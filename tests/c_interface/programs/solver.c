/* SPDX-License-Identifier: Apache-2.0 */
/* A heat solver in C trains the model "mlp" on its own fields. It returns 0 if the model has learned the time step. */
#include <stdio.h>

#include <weft/c_interface/weft.h>

enum { rods = 16, cells = 8 };

static void check(int code) {
  if (code != 0) fprintf(stderr, "%s\n", weft_error());
}

int main(void) {
  static double now[rods][cells], next[rods][cells], guess[rods][cells];
  const size_t shape[] = {cells};
  weft_world* world = NULL;
  weft_model* model = NULL;
  double loss = 0, start = 0;
  if (weft_world_single(&world) != 2) return 4; /* Kokkos does not run */
  check(weft_begin(2));
  check(weft_world_single(&world));
  if (weft_model_new(world, "transformer", "", &model) != 2) return 3; /* there is no such model */
  check(weft_model_new(world, "mlp", "inputs=8 hidden=32 outputs=8", &model));
  check(weft_optimizer(model, "adamw", "learning_rate=1e-2 weight_decay=0"));
  for (int step = 0; step < 300; ++step) {
    for (int rod = 0; rod < rods; ++rod)
      for (int cell = 0; cell < cells; ++cell) now[rod][cell] = (rod * 7 + cell * 5 + step * 3) % 11 / 11.0;
    for (int rod = 0; rod < rods; ++rod)
      for (int cell = 0; cell < cells; ++cell)
        next[rod][cell] = 0.5 * now[rod][cell] + 0.25 * (now[rod][(cell + 1) % cells] + now[rod][(cell + cells - 1) % cells]);
    check(weft_field(model, "input", now, WEFT_FLOAT64, rods, 1, shape));
    check(weft_field(model, "target", next, WEFT_FLOAT64, rods, 1, shape));
    check(weft_train(model, step == 0 ? &start : &loss));
  }
  check(weft_predict(model, &guess[0][0], rods * cells));
  printf("loss %.4f to %.6f, cell %.3f is predicted as %.3f\n", start, loss, next[3][2], guess[3][2]);
  check(weft_model_free(model));
  check(weft_world_free(world));
  check(weft_end());
  return loss < start / 50 ? 0 : 1;
}
