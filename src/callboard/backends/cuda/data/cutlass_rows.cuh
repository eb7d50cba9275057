// A leaf of an epilogue of groups of rows: a matrix, read from global memory where it is used. The rows of each group
// start at an address of their own.

template <class Element>
struct GroupedMatrix : cutlass::epilogue::fusion::Sm90AuxLoad<
    0, void, Element, cute::Stride<int64_t, cute::_1, int64_t>, void, void, 2, false> {
    using Base = cutlass::epilogue::fusion::Sm90AuxLoad<
        0, void, Element, cute::Stride<int64_t, cute::_1, int64_t>, void, void, 2, false>;
    struct Arguments {
        const Element* const* starts;  // one for each group
        int64_t step;                  // of rows
    };
    using Params = Arguments;
    Params const* params = nullptr;

    template <class ProblemShape>
    static constexpr Params to_underlying_arguments(ProblemShape const&, Arguments const& given, void*) {
        return given;
    }
    template <class ProblemShape>
    static bool can_implement(ProblemShape const&, Arguments const&) {
        return true;
    }
    template <class ProblemShape>
    static size_t get_workspace_size(ProblemShape const&, Arguments const&) {
        return 0;
    }
    template <class ProblemShape>
    static cutlass::Status initialize_workspace(
        ProblemShape const&, Arguments const&, void*, cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
        return cutlass::Status::kSuccess;
    }

    CUTLASS_HOST_DEVICE GroupedMatrix() {}
    CUTLASS_HOST_DEVICE GroupedMatrix(Params const& given, typename Base::SharedStorage const&) : params(&given) {}

    template <bool ReferenceSrc, class... Args>
    CUTLASS_DEVICE auto get_consumer_store_callbacks(
        cutlass::epilogue::fusion::detail::ConsumerStoreArgs<Args...> const& args) {
        using namespace cute;
        using cutlass::epilogue::fusion::sm90_partition_for_epilogue;
        auto [rows, columns, inner, one] = args.problem_shape_mnkl;
        auto [m, n, k, group] = args.tile_coord_mnkl;
        const auto shape = make_shape(rows, columns, 1);
        const auto tile = make_coord(m, n, k, 0);
        Tensor matrix = make_tensor(
            make_gmem_ptr(params->starts[group]), shape, make_stride(params->step, _1{}, int64_t(0)));
        Tensor mine = sm90_partition_for_epilogue<ReferenceSrc>(
            matrix, args.tile_shape_mnk, tile, args.epi_tile, args.tiled_copy, args.thread_idx);
        Tensor places = sm90_partition_for_epilogue<ReferenceSrc>(
            make_identity_tensor(shape), args.tile_shape_mnk, tile, args.epi_tile, args.tiled_copy, args.thread_idx);
        Tensor held = make_tensor<Element>(take<0, 3>(cute::shape(mine)));
        using Callbacks = typename Base::template ConsumerStoreCallbacks<
            decltype(mine), decltype(held), decltype(places), cute::remove_cvref_t<decltype(shape)>>;
        return Callbacks(cute::move(mine), cute::move(held), cute::move(places), shape, nullptr);
    }
};
