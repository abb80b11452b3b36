// The register lists of wgmma's inline assembly: JAXSPARSE_REGS_<n> is the text "%0, ..., %<n - 1>"
// of n accumulators, JAXSPARSE_ACC_<n> the operands d[0] to d[n - 1] of an array of them.
#pragma once

#define JAXSPARSE_ACC8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define JAXSPARSE_ACC32(i) \
  JAXSPARSE_ACC8(i), JAXSPARSE_ACC8(i + 8), JAXSPARSE_ACC8(i + 16), JAXSPARSE_ACC8(i + 24)

#define JAXSPARSE_REGS_32                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define JAXSPARSE_REGS_48 \
  JAXSPARSE_REGS_32       \
  ", "                    \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define JAXSPARSE_REGS_64                                                                 \
  JAXSPARSE_REGS_32                                                                       \
  ", "                                                                                    \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define JAXSPARSE_REGS_80 \
  JAXSPARSE_REGS_64       \
  ", "                    \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define JAXSPARSE_REGS_96                                                                 \
  JAXSPARSE_REGS_64                                                                       \
  ", "                                                                                    \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define JAXSPARSE_REGS_128                                                                \
  JAXSPARSE_REGS_64                                                                       \
  ", "                                                                                    \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "    \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "  \
  "%126, %127"
#define JAXSPARSE_ACC_32 JAXSPARSE_ACC32(0)
#define JAXSPARSE_ACC_48 JAXSPARSE_ACC_32, JAXSPARSE_ACC8(32), JAXSPARSE_ACC8(40)
#define JAXSPARSE_ACC_64 JAXSPARSE_ACC32(0), JAXSPARSE_ACC32(32)
#define JAXSPARSE_ACC_80 JAXSPARSE_ACC_64, JAXSPARSE_ACC8(64), JAXSPARSE_ACC8(72)
#define JAXSPARSE_ACC_96 JAXSPARSE_ACC_64, JAXSPARSE_ACC32(64)
#define JAXSPARSE_ACC_128 JAXSPARSE_ACC_64, JAXSPARSE_ACC32(64), JAXSPARSE_ACC32(96)
