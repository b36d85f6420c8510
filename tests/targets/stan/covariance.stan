data {
  int<lower=2> d;
  int<lower=1> n;
  matrix[d, d] scatter;
}
parameters {
  cov_matrix[d] S;
}
model {
  S ~ inv_wishart(d + 2, identity_matrix(d));
  target += -0.5 * n * log_determinant(S) - 0.5 * sum(diagonal(S \ scatter));
}
