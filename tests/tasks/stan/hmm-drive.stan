data {
  int K;
  int N;
  vector[N] u;
  vector[N] v;
  matrix[K, K] alpha;
}
parameters {
  simplex[K] theta1;
  simplex[K] theta2;
  positive_ordered[K] phi;
  positive_ordered[K] lambda;
}
model {
  matrix[K, N] log_omega;
  matrix[K, K] Gamma;
  Gamma[1] = theta1';
  Gamma[2] = theta2';
  for (t in 1 : N) {
    for (k in 1 : K) {
      log_omega[k, t] = exponential_lpdf(u[t] | phi[k]) + exponential_lpdf(v[t] | lambda[k]);
    }
  }
  theta1 ~ dirichlet(alpha[1]');
  theta2 ~ dirichlet(alpha[2]');
  phi ~ normal([0, 3], 1);
  lambda ~ normal([0, 3], 1);
  vector[K] forward = log_omega[ : , 1];
  for (t in 2 : N) {
    vector[K] before = forward;
    for (k in 1 : K) {
      forward[k] = log_sum_exp(before + log(Gamma[ : , k])) + log_omega[k, t];
    }
  }
  target += log_sum_exp(forward);
}
