# Types in comments, such as Tensor<T>, are no HTML; lines indented by three are code, which Doxygen wants indented by more.
:a
s,(///.*[^/])<,\1\&lt;,
ta
s,^( *///)   ( *[^ -]),\1       \2,
