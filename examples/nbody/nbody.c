/* Bodies that attract each other, all with all, on the cores of one node: nbody BODIES STEPS.

   Prints the rate of the forces' arithmetic, and checks that momentum was kept, so a wrong build does not look fast. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define FLOPS_PER_PAIR 20.0 /* the usual count: 3 differences, 6 for the distance, 5 for 1/r^3, 6 for the sums */
#define SOFTENING 1e-2f
#define STEP 1e-3f

typedef struct { float x, y, z, mass; } Body;
typedef struct { float x, y, z; } Vector;

static void fall(const Body *bodies, Vector *speeds, int count)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < count; i++) {
        float ax = 0, ay = 0, az = 0;
        const Body me = bodies[i];
#pragma omp simd reduction(+ : ax, ay, az)
        for (int j = 0; j < count; j++) {
            const float dx = bodies[j].x - me.x, dy = bodies[j].y - me.y, dz = bodies[j].z - me.z;
            const float near = dx * dx + dy * dy + dz * dz + SOFTENING;
            const float pull = bodies[j].mass / (near * sqrtf(near));
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        speeds[i].x += STEP * ax;
        speeds[i].y += STEP * ay;
        speeds[i].z += STEP * az;
    }
}

static void move(Body *bodies, const Vector *speeds, int count)
{
    for (int i = 0; i < count; i++) {
        bodies[i].x += STEP * speeds[i].x;
        bodies[i].y += STEP * speeds[i].y;
        bodies[i].z += STEP * speeds[i].z;
    }
}

static double momentum(const Body *bodies, const Vector *speeds, int count)
{
    double x = 0, y = 0, z = 0, scale = 1e-30;
    for (int i = 0; i < count; i++) {
        x += bodies[i].mass * speeds[i].x;
        y += bodies[i].mass * speeds[i].y;
        z += bodies[i].mass * speeds[i].z;
        scale += bodies[i].mass * (fabs(speeds[i].x) + fabs(speeds[i].y) + fabs(speeds[i].z));
    }
    return (fabs(x) + fabs(y) + fabs(z)) / scale;
}

static float next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (1 << 24);
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 8192, steps = argc > 2 ? atoi(argv[2]) : 10;
    if (count < 2 || steps < 1) {
        fprintf(stderr, "nbody: BODIES of 2 and more, and STEPS of 1 and more: nbody 8192 10\n");
        return 2;
    }
    Body *bodies = malloc(count * sizeof *bodies);
    Vector *speeds = calloc(count, sizeof *speeds);
    if (!bodies || !speeds) {
        fprintf(stderr, "nbody: no memory for %d bodies\n", count);
        return 1;
    }
    unsigned state = 1;
    for (int i = 0; i < count; i++)
        bodies[i] = (Body){next(&state), next(&state), next(&state), 1.0f / count};
    const double start = omp_get_wtime();
    for (int step = 0; step < steps; step++) {
        fall(bodies, speeds, count);
        move(bodies, speeds, count);
    }
    const double seconds = omp_get_wtime() - start, lost = momentum(bodies, speeds, count);
    printf("%d bodies, %d steps, %d threads: %.2f GFLOP/s\n", count, steps, omp_get_max_threads(),
           FLOPS_PER_PAIR * count * count * steps / seconds / 1e9);
    printf("momentum kept to %.1e\n", lost);
    free(bodies);
    free(speeds);
    return lost < 1e-3 ? 0 : 1;
}
